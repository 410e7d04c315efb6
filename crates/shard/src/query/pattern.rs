//! Regular expressions: `regex-automata` matches them; the literals that every match must contain
//! are looked up in the index.
//!
//! `regex-syntax` extracts the literals, as prefixes of every part of a concatenation: the parts of
//! `lib.*-dev` give `lib` and `-dev`, and both must occur. Matching takes time linear in the value;
//! the size of a compiled expression is bounded.

use std::fmt;

use regex_automata::meta;
use regex_automata::util::syntax;
use regex_syntax::hir::literal::Extractor;
use regex_syntax::hir::{Hir, HirKind, Look};

use crate::boundary::is_of_words;
use crate::error::Error;

/// The longest regular expression in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 4096;
/// The largest size of each of its automata in bytes.
const AUTOMATON_BYTES_MAX: usize = 4 << 20;
/// The deepest nesting of an expression.
const NEST_MAX: u32 = 64;
/// The most adjacent parts of a concatenation whose literals are combined.
const WINDOW: usize = 16;
/// The most alternatives of a clause: more are hardly ever rarer than a single literal of another
/// clause.
const LITERALS_MAX: usize = 64;
/// The most clauses kept, the longest literals first.
const CLAUSES_MAX: usize = 4;

/// A compiled regular expression, in the syntax of the crate `regex` for bytes (`(?-u)` is
/// allowed). Lines end with `\n`, `\r\n` or `\r`: `.` matches none of these, and with `(?m)` `^` and `$` match
/// at them.
#[derive(Clone)]
pub struct Pattern {
    source: String,
    regex: meta::Regex,
    clauses: Vec<Clause>,
    word: Option<Word>,
}

/// The kind of word boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bounds {
    /// ASCII boundaries: `(?-u)\b`.
    Ascii,
    /// Unicode boundaries: next to a non-ASCII byte, the neighbouring bytes do not decide.
    Unicode,
}

/// A literal between two `\b` that starts and ends with a letter, a digit or `_`: the bytes beside
/// an occurrence decide whether it is a whole word.
pub(super) type Word = (Vec<u8>, Bounds);

/// A set of literals of which every match contains at least one.
pub(super) type Clause = Vec<Vec<u8>>;

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    ///
    /// [`Error::Syntax`] if it is invalid or too large.
    pub fn new(source: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::Syntax { at: 0, what };
        if source.len() > PATTERN_BYTES_MAX {
            let what = format!("the regular expression is longer than {PATTERN_BYTES_MAX} bytes");
            return Err(wrong(what));
        }
        // Files with CRLF are as common as others, and a query should not need to know: `(?m)$` matches before `\r\n`, `.`
        // matches neither of the two. `(?-R)` undoes it.
        let syntax = syntax::Config::new().utf8(false).crlf(true).nest_limit(NEST_MAX);
        let hir = syntax::parse_with(source, &syntax)
            .map_err(|error| wrong(format!("invalid regular expression: {error}")))?;
        let config = meta::Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(AUTOMATON_BYTES_MAX))
            .hybrid_cache_capacity(AUTOMATON_BYTES_MAX);
        let regex = meta::Builder::new()
            .configure(config)
            .build_from_hir(&hir)
            .map_err(|error| match error.size_limit() {
                Some(bytes) => wrong(format!(
                    "the regular expression takes more than {bytes} bytes of memory: repeat less, or fewer characters at a time"
                )),
                None => wrong(format!("invalid regular expression: {error}")),
            })?;
        let mut clauses = clauses(&hir);
        clauses.sort_by_key(|clause| std::cmp::Reverse(score(clause)));
        clauses.dedup();
        clauses.truncate(CLAUSES_MAX);
        Ok(Self { source: source.to_owned(), regex, clauses, word: word(&hir) })
    }

    /// The source of the expression.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the expression matches anywhere in `value`.
    pub fn is_match(&self, value: &[u8]) -> bool {
        self.regex.is_match(value)
    }

    /// The word, if the expression is a word between word boundaries.
    pub(super) fn word(&self) -> Option<&Word> {
        self.word.as_ref()
    }

    /// The clauses; a matching value contains at least one literal of each.
    pub(super) fn clauses(&self) -> &[Clause] {
        &self.clauses
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.source).finish()
    }
}

fn word(hir: &Hir) -> Option<Word> {
    let HirKind::Concat(parts) = hir.kind() else { return None };
    let [first, middle, last] = &parts[..] else { return None };
    let bounds = match (first.kind(), last.kind()) {
        (HirKind::Look(Look::WordAscii), HirKind::Look(Look::WordAscii)) => Bounds::Ascii,
        (HirKind::Look(Look::WordUnicode), HirKind::Look(Look::WordUnicode)) => Bounds::Unicode,
        _ => return None,
    };
    let HirKind::Literal(literal) = middle.kind() else { return None };
    let ends = [literal.0.first()?, literal.0.last()?];
    ends.iter().all(|byte| is_of_words(**byte)).then(|| (literal.0.to_vec(), bounds))
}

/// The clauses that hold for every match. The recursion is as deep as the expression.
fn clauses(hir: &Hir) -> Vec<Clause> {
    let mut found: Vec<Clause> = prefixes(hir).into_iter().collect();
    match hir.kind() {
        HirKind::Capture(capture) => found.extend(clauses(&capture.sub)),
        HirKind::Repetition(repetition) if repetition.min > 0 => {
            found.extend(clauses(&repetition.sub));
        }
        HirKind::Concat(parts) => {
            for (at, part) in parts.iter().enumerate() {
                let end = parts.len().min(at + WINDOW);
                found.extend(prefixes(&Hir::concat(parts[at..end].to_vec())));
                found.extend(clauses(part));
            }
        }
        HirKind::Alternation(branches) => {
            // The union of the best clauses of all branches holds for every match.
            let best = branches.iter().map(|branch| clauses(branch).into_iter().max_by_key(score));
            let together: Option<Vec<Clause>> = best.collect();
            let together: Option<Clause> = together.map(|clauses| clauses.concat());
            found.extend(together.filter(|clause| clause.len() <= LITERALS_MAX));
        }
        _ => {}
    }
    // Enough clauses for the caller to choose from, without growth with the depth.
    found.sort_by_key(|clause| std::cmp::Reverse(score(clause)));
    found.truncate(CLAUSES_MAX);
    found
}

/// The prefixes of matches, if they are few and not empty.
fn prefixes(hir: &Hir) -> Option<Clause> {
    let sequence = Extractor::new().extract(hir);
    let literals = sequence.literals()?;
    if literals.len() > LITERALS_MAX || literals.iter().any(|literal| literal.is_empty()) {
        return None;
    }
    let mut clause: Clause = literals.iter().map(|literal| literal.as_bytes().to_vec()).collect();
    clause.sort_unstable();
    clause.dedup();
    Some(clause)
}

/// Ranks clauses by expected rarity: longer literals are rarer, and so are fewer literals of equal
/// length. An empty clause never holds, and ranks best.
fn score(clause: &Clause) -> (usize, std::cmp::Reverse<usize>) {
    let shortest = clause.iter().map(Vec::len).min().unwrap_or(usize::MAX);
    (shortest, std::cmp::Reverse(clause.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(source: &str, expected: &[&[&str]]) {
        let pattern = Pattern::new(source).unwrap();
        let shown: Vec<Vec<&str>> = pattern
            .clauses()
            .iter()
            .map(|clause| clause.iter().map(|l| std::str::from_utf8(l).unwrap()).collect())
            .collect();
        for clause in expected {
            assert!(shown.iter().any(|c| c == clause), "{source}: {clause:?} is not in {shown:?}");
        }
        assert_eq!(expected.is_empty(), shown.is_empty(), "{source}: {shown:?}");
    }

    #[test]
    fn literals_are_found_wherever_they_stand() {
        check("^lib.*-dev$", &[&["lib"], &["-dev"]]);
        check("(?:foo|bar)baz", &[&["barbaz", "foobaz"]]);
        check("(?:foo|bar)+baz", &[&["bar", "foo"], &["baz"]]);
        check(".*(python[23])?-apt", &[&["-apt"]]);
        check("[a-z]+(one|[0-9]*two)", &[&["one", "two"]]);
        check("(?i)ab", &[&["AB", "Ab", "aB", "ab"]]);
        check(".*", &[]);
        check("[^x]+|foo", &[]);
        check("a?", &[]);
    }

    #[test]
    fn lines_end_with_either_line_end() {
        let check = |source: &str, value: &str, expected: bool| {
            let found = Pattern::new(source).unwrap().is_match(value.as_bytes());
            assert_eq!(found, expected, "{source} in {value:?}");
        };
        for end in ["\n", "\r\n"] {
            let value = format!("Package: lib{end}Section: x-dev{end}last");
            check("(?m)^Package: lib$", &value, true);
            check("(?m)^Section.*-dev$", &value, true);
            check("(?m)^Section.*-dev.$", &value, false);
            check("lib.Section", &value, false);
            check("lib..Section", &value, false);
            check("(?m)^$", &value, false);
            check("^Section", &value, false);
            check("lib(?s:.+)Section", &value, true);
        }
        check("(?-R)a.b", "a\rb", true);
        check("a.b", "a\rb", false);
    }

    #[test]
    fn what_is_too_large_or_wrong_is_refused() {
        for source in
            ["(", "a{1000}{1000}{1000}", &"(".repeat(100), &"a".repeat(PATTERN_BYTES_MAX + 1)]
        {
            assert!(matches!(Pattern::new(source), Err(Error::Syntax { .. })), "{source:.20}");
        }
        // A limit, and not a mistake in its syntax.
        let large = Pattern::new("a{1000}{1000}{1000}").unwrap_err().to_string();
        assert!(large.contains("bytes of memory"), "{large}");
    }

    proptest! {
        /// What matches holds every clause.
        #[test]
        fn clauses_hold_of_every_match(
            source in r"(\^?(a|b|ab|\.|\[ab\]|\(a\|bc\)|\(b\|a\.\)|c)([*+?]|\{2\})?){1,5}",
            value in "[abc]{0,12}",
        ) {
            let pattern = Pattern::new(&source).unwrap();
            if pattern.is_match(value.as_bytes()) {
                for clause in pattern.clauses() {
                    let holds = clause.iter().any(|l| value.contains(std::str::from_utf8(l).unwrap()));
                    prop_assert!(holds, "{source} matches {value}, which has none of {clause:?}");
                }
            }
        }

        #[test]
        fn arbitrary_expressions_never_panic(source in ".{0,40}", value in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(pattern) = Pattern::new(&source) {
                pattern.is_match(&value);
            }
        }
    }
}
