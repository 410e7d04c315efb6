//! How queries are read, and where their mistakes are.

use std::ops::Bound;

use super::syntax::{DEPTH_MAX, QUERY_BYTES_MAX, TERMS_MAX};
use super::tests::{query, test};
use super::*;
use crate::Error;
use crate::record::Number;

#[test]
fn queries_are_read() {
    let number = |text: &str| Number::parse(text.as_bytes()).unwrap();
    let bytes = |text: &str| text.as_bytes().to_vec();
    let word = |text: &str| test(None, Condition::Contains(bytes(text)));
    let rows = [
        ("", Query::All),
        (" ( ) ", Query::All),
        ("python", word("python")),
        ("\"a: \\x00\\\"\"", word("a: \0\"")),
        ("A:b:c", test(Some("A"), Condition::Contains(bytes("b:c")))),
        ("A:", test(Some("A"), Condition::Contains(bytes("")))),
        ("A:=", test(Some("A"), Condition::Equals(bytes("")))),
        ("\"a b\":=\"(c)\"", test(Some("a b"), Condition::Equals(bytes("(c)")))),
        ("A:^x", test(Some("A"), Condition::Prefix(bytes("x")))),
        (
            "A:1..2.5",
            test(
                Some("A"),
                Condition::Numbers(Bound::Included(number("1")), Bound::Included(number("2.5"))),
            ),
        ),
        (
            "A:..2",
            test(Some("A"), Condition::Numbers(Bound::Unbounded, Bound::Included(number("2")))),
        ),
        (
            "A:>2",
            test(Some("A"), Condition::Numbers(Bound::Excluded(number("2")), Bound::Unbounded)),
        ),
        (
            "A:\"1\"..\"x\"",
            test(
                Some("A"),
                Condition::Strings(Bound::Included(bytes("1")), Bound::Included(bytes("x"))),
            ),
        ),
        (
            "A:\"1\"..",
            test(Some("A"), Condition::Strings(Bound::Included(bytes("1")), Bound::Unbounded)),
        ),
        (
            "A:<=\"x y\"",
            test(Some("A"), Condition::Strings(Bound::Unbounded, Bound::Included(bytes("x y")))),
        ),
        ("~a.b", test(None, Condition::Matches(Pattern::new("a.b").unwrap()))),
        (
            r#"A:~"\d \" \\""#,
            test(Some("A"), Condition::Matches(Pattern::new(r#"\d " \\"#).unwrap())),
        ),
        ("A:i\"x.y\"", test(Some("A"), Condition::Matches(Pattern::new(r"(?i)x\.y").unwrap()))),
        ("iw\"cat\"", test(None, Condition::Matches(Pattern::new(r"(?i)\bcat\b").unwrap()))),
        ("w\"cat\"", test(None, Condition::Matches(Pattern::new(r"\bcat\b").unwrap()))),
        ("a b", Query::And(vec![word("a"), word("b")])),
        (
            "a AND b OR NOT c d",
            Query::Or(vec![
                Query::And(vec![word("a"), word("b")]),
                Query::And(vec![Query::Not(Box::new(word("c"))), word("d")]),
            ]),
        ),
        ("NOT(a OR b)", Query::Not(Box::new(Query::Or(vec![word("a"), word("b")])))),
        ("ORB ANDY", Query::And(vec![word("ORB"), word("ANDY")])),
        ("\"OR\"", word("OR")),
        ("NOT:x", test(Some("NOT"), Condition::Contains(bytes("x")))),
    ];
    for (text, expected) in rows {
        assert_eq!(query(text), expected, "{text}");
        assert_eq!(query(&expected.to_string()), expected, "{expected}");
    }
}

#[test]
fn mistakes_are_placed() {
    let deep = "(".repeat(DEPTH_MAX + 2);
    let nots = "NOT ".repeat(DEPTH_MAX + 2);
    let long = "a ".repeat(TERMS_MAX + 1);
    let patterns = "~a ".repeat(17);
    for (text, at) in [
        ("a OR", 4),
        ("OR a", 0),
        ("a AND OR b", 6),
        ("(a", 2),
        ("a)", 1),
        (":x", 0),
        ("a:\"b", 2),
        ("\"\\q\"", 1),
        ("a(b", 1),
        ("a:..", 4),
        ("a:>", 3),
        ("a:>10O", 3),
        ("a:>1,000", 3),
        ("a:<0x10", 3),
        ("a:>=1e309", 4),
        ("a:1..1O", 2),
        ("a:..x", 2),
        ("a:1..\"9\"", 2),
        ("a:~(", 3),
        ("a:~\"(\"", 3),
        ("NOT", 3),
        (&deep, DEPTH_MAX + 1),
        (&nots, 4 * (DEPTH_MAX + 1)),
        (&long, 2 * TERMS_MAX),
        (&patterns, 16 * 3 + 1),
    ] {
        match text.parse::<Query>() {
            Err(Error::Syntax { at: found, .. }) => assert_eq!(found, at, "{text:.40}"),
            other => panic!("{text:.40}: {other:?}"),
        }
    }
    assert!(" ".repeat(QUERY_BYTES_MAX + 1).parse::<Query>().is_err());
}

#[test]
fn queries_that_most_likely_mean_another_are_warned_of() {
    let blank = |meant: &str| Some(format!("without the blank, {meant} tests the attribute"));
    let word = |operator: &str| Some(format!("{operator} in capitals is the operator"));
    let rows = [
        ("Section: libs", blank("Section:libs")),
        ("Section:  \"a b\"", blank("Section:\"a b\"")),
        ("id:= 1", blank("id:=1")),
        ("Package:^ lib", blank("Package:^lib")),
        ("Package:~ lib.*", blank("Package:~lib.*")),
        ("Size: >5", blank("Size:>5")),
        ("Size: =5", blank("Size:=5")),
        ("Size: 5..7", blank("Size:5..7")),
        ("Size:5.. 7", blank("Size:5..7")),
        ("Package: i\"x\"", blank("Package:i\"x\"")),
        ("Package: ~x", blank("Package:~x")),
        ("\"a b\": c", blank("\"a b\":c")),
        ("(x OR Section: libs)", blank("Section:libs")),
        ("NOT Section: libs", blank("Section:libs")),
        ("cat or dog", word("OR")),
        ("cat Not dog", word("NOT")),
        // Each of these says what it means.
        ("Section: AND libs", None),
        ("libs Section:", None),
        ("Section: Package:x", None),
        ("Section: NOT libs", None),
        ("Section: OR libs", None),
        ("(Section:) libs", None),
        ("Section: (libs)", None),
        ("Section:=\"\" libs", None),
        ("Section:a libs", None),
        ("Size:5.. x", None),
        ("cat \"or\" dog", None),
        ("or", None),
        // The mistake is an error already.
        ("Section: libs )", None),
        ("Size:> 5", None),
    ];
    for (text, expected) in rows {
        let warnings = Query::warnings(text);
        match expected {
            Some(says) => {
                assert_eq!(warnings.len(), 1, "{text}: {warnings:?}");
                assert!(warnings[0].contains(&says), "{text}: {warnings:?}");
            }
            None => assert_eq!(warnings, [""; 0], "{text}"),
        }
    }
    // The form without the warning is the same query.
    assert_eq!(query("Section: libs"), query("Section: AND libs"));
    assert_eq!(Query::warnings("a: b or c: d").len(), 3);
}
