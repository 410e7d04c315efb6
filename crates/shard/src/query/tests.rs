use std::ops::Bound;

use proptest::prelude::*;

use super::*;
use crate::record::{Builder, Format, Number, Records, Schema};
use crate::{Error, naive, sample};

pub(super) fn build(schema: Schema, text: &[u8], record_bytes_max: usize) -> Records {
    build_ordered(schema, text, record_bytes_max, &[])
}

pub(super) fn build_ordered(schema: Schema, text: &[u8], max: usize, orders: &[&str]) -> Records {
    let builder = Builder::new(schema).record_bytes_max(max);
    let mut builder = orders.iter().fold(builder, |builder, name| builder.order_by(name));
    builder.push(text).unwrap();
    builder.finish().unwrap().0
}

/// The twin: every record is read.
fn scan(query: &Query, text: &[u8], records: &Records) -> Vec<usize> {
    let matches =
        |&record: &usize| query.matches(records.schema(), &text[records.range(record).unwrap()]);
    (0..records.len()).filter(matches).collect()
}

/// Every way of asking gives what the twin gives. Returns the answer and the records read for it.
pub(super) fn check(
    query: &Query,
    bytes: &[u8],
    text: &naive::Text,
    records: &Records,
) -> (Vec<usize>, usize) {
    let expected = scan(query, bytes, records);
    let searcher = Searcher::new(text, records).unwrap();
    let all = Page { limit: usize::MAX, ..Page::default() };
    let answer = searcher.search(query, &all).unwrap();
    assert_eq!(answer.records, expected, "{query}");
    assert!(!answer.has_more && answer.next.is_none());
    assert_eq!(searcher.count(query).unwrap(), expected.len(), "{query}");

    // Pages, each of a limit and a budget of its own.
    let limits = Limits { verified_max: 5, ..Limits::default() };
    let bounded = Searcher::new(text, records).unwrap().with_limits(limits);
    let mut paged = Vec::new();
    let mut page = Page { limit: 2, ..Page::default() };
    loop {
        let part = bounded.search(query, &page).unwrap();
        assert!(part.records.len() <= 2 && part.verified <= 5);
        paged.extend(part.records);
        match part.next {
            Some(next) => page.after = Some(next),
            None => break,
        }
    }
    assert_eq!(paged, expected, "{query} in pages");

    let mut unsorted = searcher.search(query, &Page { sorted: false, ..all }).unwrap();
    unsorted.records.sort_unstable();
    assert_eq!(unsorted.records, expected, "{query} unsorted");
    let few = searcher.search(query, &Page { limit: 2, sorted: false, after: None }).unwrap();
    assert_eq!(few.records.len(), expected.len().min(2), "{query}: two, unsorted");
    assert!(few.records.iter().all(|record| expected.contains(record)));
    assert!(few.has_more || expected.len() <= 2, "{query}: more than two");

    // Where more occurrences than a limit would have to be located, all records are read instead.
    for located_max in [0, 3] {
        let limits = Limits { located_max, ..Limits::default() };
        let scanning = Searcher::new(text, records).unwrap().with_limits(limits);
        for sorted in [true, false] {
            let mut answer = scanning.search(query, &Page { sorted, ..all }).unwrap();
            assert!(answer.located <= located_max, "{query}: {} located", answer.located);
            answer.records.sort_unstable();
            assert_eq!(answer.records, expected, "{query}, locating at most {located_max}");
        }
        assert_eq!(scanning.count(query).unwrap(), expected.len(), "{query}");
    }
    (expected, answer.verified)
}

pub(super) fn query(text: &str) -> Query {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Rows of a query, how many records match, and how many may be read to find them.
fn check_rows(name: &str, bytes_max: usize, rows: &[(&str, Option<usize>, usize)]) {
    let Some(bytes) = sample::text(name, bytes_max) else { return };
    let records = build(Schema::detect(&bytes), &bytes, 1 << 20);
    let text = naive::Text::new(bytes.clone());
    for &(source, count, verified_max) in rows {
        let query = query(source);
        let (found, verified) = check(&query, &bytes, &text, &records);
        match count {
            Some(count) => assert_eq!(found.len(), count, "{source}"),
            None => assert!(!found.is_empty(), "{source} finds nothing"),
        }
        assert!(verified <= found.len() + verified_max, "{source}: {verified} records read");
    }
}

#[test]
fn packages_are_found() {
    check_rows(
        "debian_packages.txt",
        200_000,
        &[
            ("Package:=0ad", Some(1), 0),
            ("Package:^0ad", None, 2),
            ("Maintainer:games", None, 5),
            ("Section:=games AND Architecture:=all", None, 100),
            ("Section:=games NOT Architecture:=all", None, 200),
            ("Package:=no-such-package", Some(0), 0),
            ("Installed-Size:>=1000000", None, 1000),
            ("Version:\"0.0\"..\"0.1\"", None, 100),
            ("Tag:role::program (Section:=games OR Section:=admin)", None, 200),
            ("Homepage:~\"^https://[a-z]+\\.org/$\" OR Package:=0ad", None, 1000),
            ("Depends:~\"libsdl2.*zlib1g\"", None, 50),
            ("~\"SHA256: 3a2118df\"", Some(1), 0),
            ("libsodium23", None, 0),
            ("Description:", None, 1000),
            ("NOT Section:=games", None, 1000),
            ("No-Such-Field:x", Some(0), 0),
        ],
    );
}

#[test]
fn json_is_found() {
    check_rows(
        "nginx_plus_status.jsonl",
        150_000,
        &[
            ("timestamp:=1446249499322", Some(1), 0),
            ("upstreams.trac-backend.peers.server:=\"10.0.0.1:8080\"", None, 0),
            ("connections.active:=2", None, 0),
            ("connections.active:1..3", None, 100),
            ("nginx_version:^1.9", None, 0),
            ("nginx_version:=1.9", Some(0), 100),
        ],
    );
}

#[test]
fn rows_are_found() {
    check_rows(
        "geonames_cities1000.csv",
        60_000,
        &[
            ("name:=Encamp", Some(1), 1),
            ("cc:=AD", None, 0),
            ("lat:42..43 cc:=AD", None, 20),
            ("admin1:=\"\"", None, 2000),
            ("admin2:=\"\" cc:=AD", None, 20),
            ("name:\"es\"", None, 500),
        ],
    );
}

#[test]
fn ranges_are_looked_up_where_numbers_are_in_order() {
    let Some(bytes) = sample::text("geonames_cities1000.csv", 60_000) else { return };
    let text = naive::Text::new(bytes.clone());
    let query = query("lat:-35..-34.5");
    let plain = build(Schema::detect(&bytes), &bytes, 1 << 20);
    let ordered = build_ordered(Schema::detect(&bytes), &bytes, 1 << 20, &["lat", "name"]);
    let (found, verified) = check(&query, &bytes, &text, &plain);
    assert_eq!(verified, plain.len());
    assert_eq!(check(&query, &bytes, &text, &ordered), (found.clone(), 0));
    assert!(!found.is_empty() && found.len() < 100, "{}", found.len());
    assert!(ordered.order("name").unwrap().len() == 0 && ordered.order("lon").is_none());
    assert_eq!(Records::decode(&ordered.encode()).unwrap(), ordered);
}

#[test]
fn lines_are_found() {
    check_rows(
        "wordnet_synsets.txt",
        100_000,
        &[
            ("line:^00001740", Some(1), 2),
            ("\"living or nonliving\"", None, 0),
            ("~\"physical_(entity|object)\"", None, 0),
            ("entity NOT physical", None, 100),
        ],
    );
}

#[test]
fn keys_and_records_are_got() {
    let text = b"Package: ed\nV: 1\n\nPackage: edit\nV: 1\n\nPackage: ed\nV: 2\n".to_vec();
    let mut schema = Schema::detect(&text);
    schema.key = Some("Package".to_owned());
    let records = build(schema, &text, 1 << 20);
    let index = naive::Text::new(text);
    let searcher = Searcher::new(&index, &records).unwrap();
    assert_eq!(searcher.get_by_key(b"ed").unwrap(), Some(0));
    assert_eq!(searcher.get_by_key(b"edit").unwrap(), Some(1));
    assert_eq!(searcher.get_by_key(b"e").unwrap(), None);
    assert_eq!(searcher.get(2).unwrap(), b"Package: ed\nV: 2\n");
    assert_eq!(searcher.get_all(&[1, 0]).unwrap()[0], b"Package: edit\nV: 1\n\n");
    assert!(matches!(searcher.get(3), Err(Error::NoRecord { record: 3, records: 3 })));
}

#[test]
fn slips_are_named() {
    let text = b"a,b\n1,2\n3,4\n".to_vec();
    let records = build(Schema::detect(&text), &text, 1 << 20);
    let index = naive::Text::new(text);
    let searcher = Searcher::new(&index, &records).unwrap();
    let error = searcher.search(&query("NOT (a:1 OR c:2)"), &Page::default()).unwrap_err();
    assert_eq!(error.to_string(), "no attribute \"c\"; the attributes are: a, b");
    assert!(matches!(searcher.get_by_key(b"1"), Ok(Some(0))));
    let other = naive::Text::new(b"shorter".to_vec());
    assert!(matches!(Searcher::new(&other, &records), Err(Error::Damaged { .. })));
}

/// Every spelling of one value, alone in its text and among the others.
#[test]
fn unusual_spellings_are_found() {
    let stanzas = [
        "A:x\n\n",
        "A: x\n\n",
        "A:\tx\n\n",
        "A:  x\n\n",
        "A: \tx\r\n\n",
        "A:\n x \n\n",
        "A: \n x\t\n\n",
    ];
    let json = [
        "{\"A\":\"x\"}\n",
        "{\"A\": \"x\",\"B\":1}\n",
        "{\"A\" :\"x\"}\n",
        "{\"A\":\t\"x\"}\n",
        "{\"A\":  \"x\"}\n",
        "{\"\\u0041\":\"x\"}\n",
        "{\"A\":\"\\u0078\"}\n",
        "{\"A\": [\"y\",\"x\"]}\n",
        "{\"A\":[[\"x\"]]}\n",
    ];
    for (format, spellings) in [(Format::Stanzas, &stanzas[..]), (Format::JsonLines, &json[..])] {
        let texts = spellings.iter().map(|text| (*text).to_owned()).chain([spellings.concat()]);
        for text in texts {
            let records = build(Schema::new(format), text.as_bytes(), 1 << 20);
            let index = naive::Text::new(text.clone().into_bytes());
            for query in ["A:=x", "A:^x", "A:x", "A:"].map(query) {
                let (found, _) = check(&query, text.as_bytes(), &index, &records);
                assert_eq!(found.len(), records.len(), "{query} in {text}");
            }
        }
    }
    let half = b"{\"A\":\"\\ud800\"}\n";
    let records = build(Schema::new(Format::JsonLines), half, 1 << 20);
    let index = naive::Text::new(half.to_vec());
    for query in [r#"A:="\xed\xa0\x80""#, r#"A:"\xed""#, "A:"].map(query) {
        assert_eq!(check(&query, half, &index, &records).0.len(), 1, "{query}");
    }
}

pub(super) fn test(attribute: Option<&str>, condition: Condition) -> Query {
    Query::Test(Test { attribute: attribute.map(str::to_owned), condition })
}

/// Records in every spelling that their format allows, and some that it does not.
fn any_dataset() -> impl Strategy<Value = (Schema, Vec<u8>)> {
    prop_oneof![json_dataset(), csv_dataset(), stanza_dataset(), line_dataset()]
}

fn joined(
    tokens: &'static [&'static str],
    count: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        20 => proptest::sample::select(tokens).prop_map(|token| token.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    proptest::collection::vec(token, count).prop_map(|tokens| tokens.concat())
}

const KEYS: &[&str] = &[
    "\"a\"",
    "\"b\"",
    "\"\\u0061\"",
    "\"\\ud800\"",
    "\"a/b\"",
    "\"a\\/b\"",
    "\"x.a\"",
    "\"é\"",
    "\"\"",
];
const VALUES: &[&str] = &[
    "\"x\"",
    "\"xy\"",
    "\"\\u0078y\"",
    "\"x/y\"",
    "\"x\\/y\"",
    "1",
    "12",
    "1.50",
    "-1e2",
    "true",
    "null",
    "\"é x\"",
    "\"\\u00e9 x\"",
    "\"x\\\"y\"",
    "[\"x\",1]",
    "[ [\"xy\"] ]",
    "{\"a\":\"x\"}",
    "[{\"a\" : 12}]",
    "\"\"",
    "{}",
    "oops",
    "\"1\"",
];

fn json_dataset() -> impl Strategy<Value = (Schema, Vec<u8>)> {
    let blank = || proptest::sample::select(&["", "", "", " ", "  ", "\t", "\r", " \t"][..]);
    let member = (
        blank(),
        proptest::sample::select(KEYS),
        blank(),
        blank(),
        proptest::sample::select(VALUES),
        blank(),
    );
    let member = member.prop_map(|(a, key, b, c, value, d)| format!("{a}{key}{b}:{c}{value}{d}"));
    let line = proptest::collection::vec(member, 0..4);
    let line = (line, proptest::sample::select(&["\n", "\n", "\r\n", "\n\n", ""][..]));
    let line = line.prop_map(|(members, end)| format!("{{{}}}{end}", members.join(",")));
    let lines = proptest::collection::vec(line, 0..12);
    lines.prop_map(|lines| (Schema::new(Format::JsonLines), lines.concat().into_bytes()))
}

fn csv_dataset() -> impl Strategy<Value = (Schema, Vec<u8>)> {
    let fields = [
        "x",
        "xy",
        "\"x\"",
        "\"x\"\"y\"",
        "\"x,y\"",
        "\"x\ny\"",
        "",
        "\"\"",
        "1",
        "2.5",
        "x\r",
        "\"x\"y",
        "y\"x",
        "\"x",
    ];
    let field = proptest::sample::select(fields.to_vec());
    let row = prop_oneof![9 => proptest::collection::vec(field.clone(), 3), 1 => proptest::collection::vec(field, 1..5)];
    let row = (row, proptest::sample::select(&["\n", "\n", "\r\n", "\n\n", "\r\r\n", ""][..]));
    let row = row.prop_map(|(fields, end)| fields.join(",") + end);
    (proptest::collection::vec(row, 0..12), any::<bool>()).prop_map(|(rows, header)| {
        let names = ["a", "b", "x"].map(str::to_owned).to_vec();
        let start = if header { "a,b,x\n" } else { "" };
        let format = Format::Csv { delimiter: b',', header };
        (Schema { format, names, key: None }, (start.to_owned() + &rows.concat()).into_bytes())
    })
}

fn stanza_dataset() -> impl Strategy<Value = (Schema, Vec<u8>)> {
    let lines = &[
        "a: x\n",
        "a:x\n",
        "a:\tx\n",
        "a:  x\n",
        "a: \tx \n",
        "a: xy\n",
        "a:\n x\n",
        "a: \n xy\n",
        "a:\r\n x\n",
        "a: \r\n 1\n",
        "a:x\r\n",
        "a: x\t\n",
        "a: x\n y\n",
        "a:\n",
        "xa: x\n",
        "b: 1\n",
        "b:2.5\n",
        "\n",
        "\n",
        "\n",
        " \n",
        "\r\n",
        "oops\n",
        "a: y",
    ];
    joined(lines, 0..12).prop_map(|text| (Schema::new(Format::Stanzas), text))
}

fn line_dataset() -> impl Strategy<Value = (Schema, Vec<u8>)> {
    joined(&["x", "y", "xy", "\n", "\r\n", "1", " "], 0..40)
        .prop_map(|text| (Schema::new(Format::Lines), text))
}

fn any_query(names: &'static [&'static str]) -> impl Strategy<Value = Query> {
    let value = prop_oneof![
        // Most of them common to all datasets.
        4 => proptest::sample::select(&["x", "xy", "1"][..]).prop_map(|value| value.as_bytes().to_vec()),
        4 => proptest::sample::select(
            &[
                "", "x", "y", "xy", "x/y", "1", "12", "1.50", "é x", "x\"y", "x,y", "x\ny", "true",
                "e", "\r", "a", "x\n y", "y\nx",
            ][..]
        )
        .prop_map(|value| value.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1),
    ];
    let bound = || proptest::sample::select(&["1", "2", "12.5", "-100"][..]);
    let pattern = proptest::sample::select(
        &["^x", "x.?y", "(x|1)[0-9y]", "[0-9]+", "(?i)XY$", "é|/", "a{2}", "[^\\x00-\\xff]"][..],
    );
    let condition = prop_oneof![
        2 => value.clone().prop_map(Condition::Contains),
        3 => value.clone().prop_map(Condition::Equals),
        2 => value.clone().prop_map(Condition::Prefix),
        1 => (bound(), bound()).prop_map(|(from, to)| {
            let number = |text: &str| Bound::Included(Number::parse(text.as_bytes()).unwrap());
            Condition::Numbers(number(from), number(to))
        }),
        1 => (value.clone(), value).prop_map(|(from, to)| {
            Condition::Strings(Bound::Included(from), Bound::Excluded(to))
        }),
        1 => pattern.prop_map(|source| Condition::Matches(Pattern::new(source).unwrap())),
    ];
    let attribute = proptest::option::weighted(0.8, proptest::sample::select(names));
    let leaf = (attribute, condition).prop_map(|(name, condition)| test(name, condition));
    let combined = leaf.clone().prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|query| Query::Not(Box::new(query))),
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Query::And),
            proptest::collection::vec(inner, 0..3).prop_map(Query::Or),
        ]
    });
    prop_oneof![3 => leaf, 1 => combined]
}

fn names_of(format: Format) -> &'static [&'static str] {
    match format {
        Format::Lines => &["line"],
        Format::Csv { .. } => &["a", "b", "x"],
        Format::Stanzas => &["a", "b", "xa"],
        _ => &["a", "b", "a.a", "a/b", "x.a", "é", "", "b.a"],
    }
}

proptest! {
    #[test]
    fn the_index_finds_what_a_scan_finds(
        (dataset, queries) in any_dataset().prop_flat_map(|(schema, text)| {
            let queries = proptest::collection::vec(any_query(names_of(schema.format)), 8..16);
            (Just((schema, text)), queries)
        }),
        cut in prop_oneof![3 => Just(1000usize), 1 => 1..20usize],
        ordered: bool,
    ) {
        let (schema, bytes) = dataset;
        let names = &names_of(schema.format)[..1];
        let records = build_ordered(schema, &bytes, cut, if ordered { names } else { &[] });
        let text = naive::Text::new(bytes.clone());
        for query in &queries {
            check(query, &bytes, &text, &records);
        }
    }

    #[test]
    fn a_changed_query_is_another_or_none(
        query in any_query(&["a", "é", "x.a"]),
        cut in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        new in ".{0,3}",
    ) {
        let shown: Vec<char> = query.to_string().chars().collect();
        let (a, b) = (cut.index(shown.len() + 1), to.index(shown.len() + 1));
        let part = |chars: &[char]| chars.iter().collect::<String>();
        let text = part(&shown[..a.min(b)]) + &new + &part(&shown[a.max(b)..]);
        match text.parse::<Query>() {
            Ok(read) => prop_assert!(read.to_string().parse::<Query>().is_ok(), "{text}: {read}"),
            Err(Error::Syntax { at, .. }) => prop_assert!(at <= text.len(), "{text}: at {at}"),
            Err(_) => {}
        }
    }

    #[test]
    fn arbitrary_text_is_no_query_or_one_that_is_shown_again(text in prop_oneof![
        ".{0,60}",
        proptest::collection::vec(proptest::sample::select(&["a", "b:", "=", "^", "~", "\"", "\\", "(", ")", " ", "NOT ", " OR ", " AND ", "..", "1", "<", ">="][..]), 0..24)
            .prop_map(|tokens| tokens.concat()),
    ]) {
        if let Ok(read) = text.parse::<Query>() {
            let shown = read.to_string();
            let again: Query = shown.parse().map_err(|error| TestCaseError::fail(format!("{shown}: {error}")))?;
            prop_assert_eq!(again.to_string(), shown);
        }
    }
}
