use std::path::Path;

use super::*;

/// A catalogue with one figure of this body.
fn catalogue(body: &str) -> String {
    format!(
        "[[chapter]]\nname = \"one\"\ntitle = \"One\"\nsource = \"Somebody\"\n\
         [[chapter.figure]]\nname = \"Figure 1\"\nshows = \"Something <b>\"\n{body}\n"
    )
}

fn experiments() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[test]
fn a_figure_has_something_of_ours_or_the_reason_why_not() {
    let computed = "[[chapter.figure.computed]]\nwhat = \"a\"\ntheirs = 1\nrounding = 0.5\ncommand = \"x\"\nat = \"/a\"";
    let measured = "[[chapter.figure.measured]]\nexperiment = \"a\"\ntheirs = \"about 5\"";
    for (body, says) in [
        (String::new(), "not both"),
        (format!("absent = \"no data\"\n{computed}"), "not both"),
        (computed.replace("0.5", "0"), "rounding"),
        (computed.replace("at =", "where ="), "unknown field"),
        (measured.to_owned(), "has a note"),
    ] {
        let error = format!("{:#}", Catalogue::parse(&catalogue(&body)).unwrap_err());
        assert!(error.contains(says), "{body}: {error}");
    }
    let noted = &format!("note = \"another machine\"\n{measured}");
    for body in ["absent = \"no data\"", computed, noted] {
        Catalogue::parse(&catalogue(body)).unwrap();
    }
}

/// The numbers that a figure's name lists, as in "Tables 13 to 16, 25 and Figure 9, by the load".
fn numbers(name: &str, kind: &str) -> Vec<u32> {
    let (mut found, mut is_kind, mut from) = (Vec::new(), false, None);
    let mut is_range = false;
    for word in name.split([' ', ',', ':']).filter(|word| !word.is_empty()) {
        match (word.parse::<u32>(), word) {
            (Ok(to), _) if is_kind => {
                found.extend(from.filter(|_| is_range).map_or(to, |from: u32| from + 1)..=to);
                (from, is_range) = (Some(to), false);
            }
            (_, "to") => is_range = true,
            (_, "and" | "served") => {}
            _ => is_kind = word.trim_end_matches('s') == kind,
        }
    }
    found
}

/// Nothing of the sources is left out: each of their figures and tables that has data stands in a chapter.
#[test]
fn every_figure_and_table_of_the_sources_has_its_place() {
    assert_eq!(numbers("Tables 8 to 11, 27 and Figure 9", "Table"), [8, 9, 10, 11, 27]);
    assert_eq!(numbers("Table II and Figures 6 to 8: all", "Figure"), [6, 7, 8]);
    let catalogue = Catalogue::read(&experiments().join("reproduce.toml")).unwrap();
    let names = |chapter: &str| -> Vec<&str> {
        let chapter = catalogue.chapters.iter().find(|known| known.name == chapter).unwrap();
        chapter.figures.iter().map(|figure| figure.name.as_str()).collect()
    };
    let mut expected: Vec<(&str, &str, u32)> = Vec::new();
    expected.extend((2..=31).map(|table| ("middleware", "Table", table)));
    expected.extend((6..=9).map(|figure| ("spotify", "Figure", figure)));
    expected.extend([1].into_iter().chain(6..=11).map(|figure| ("blowfish", "Figure", figure)));
    for (chapter, kind, number) in expected {
        let is_there = names(chapter).iter().any(|name| numbers(name, kind).contains(&number));
        assert!(is_there, "{chapter}: {kind} {number}");
    }
    for (chapter, name) in [("spotify", "Table I "), ("spotify", "Table II")] {
        assert!(names(chapter).iter().any(|known| format!("{known} ").starts_with(name)), "{name}");
    }
}

/// What the catalogue names exists: a claim that got another name, or a plot that is not recorded any more, would be
/// missing on the page.
#[test]
fn each_claim_and_plot_of_the_catalogue_is_in_a_record() {
    let experiments = experiments();
    let catalogue = Catalogue::read(&experiments.join("reproduce.toml")).unwrap();
    for figure in catalogue.chapters.iter().flat_map(|chapter| &chapter.figures) {
        for measured in &figure.measured {
            let found = Measurement::find(measured, &experiments).unwrap();
            for plot in &measured.plots {
                assert!(found.record.join(plot).is_file(), "{}: {plot}", figure.name);
            }
        }
    }
}

/// A program that answers with a fixed text, in the place of `concertina`.
fn request(folder: &Path, body: &str, answer: &str) -> Request {
    std::fs::write(folder.join("reproduce.toml"), catalogue(body)).unwrap();
    let program = folder.join("program");
    std::fs::write(&program, format!("#!/bin/sh\nprintf '%s' '{answer}'\n")).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).unwrap();
    Request {
        experiments: folder.to_owned(),
        program,
        out: folder.join("site"),
        chapters: Vec::new(),
        rerun: None,
        quiet: true,
    }
}

#[test]
fn computed_numbers_and_curves_are_compared_with_printed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let body = r#"
        note = "rounded"
        [[chapter.figure.computed]]
        what = "near"
        theirs = 2.5
        rounding = 0.05
        command = "a --json"
        at = "/rows/0/y"
        scale = 1000
        [[chapter.figure.computed]]
        what = "far"
        theirs = 3.5
        rounding = 0.05
        command = "a --json"
        at = "/rows/1/y"
        scale = 1000
        [[chapter.figure.curve]]
        title = "A curve"
        command = "a --json"
        rows = "/rows"
        x = "/x"
        x_label = "x"
        y_label = "y"
        lines = [{ label = "line", y = "/y" }]
        theirs = [{ x = 1, y = 2 }]
    "#;
    let answer =
        r#"{"rows": [{"x": 1, "y": 0.00254}, {"x": 2, "y": 0.00356}, {"x": 3, "y": null}]}"#;
    let site = reproduce(&request(folder.path(), body, answer)).unwrap();
    let counted = Count { same: 1, differ: 1, ..Count::default() };
    assert_eq!(site.chapters[0].count, counted);
    let page = std::fs::read_to_string(&site.page).unwrap();
    assert!(page.contains("as printed") && page.contains("differs"), "{page}");
    assert!(page.contains("Something &lt;b&gt;") && page.contains("src=\"one-1-curve-1.svg\""));
    let svg = std::fs::read_to_string(folder.path().join("site/one-1-curve-1.svg")).unwrap();
    assert!(svg.contains("A curve") && svg.contains("printed: 2 at 1"));
}

#[test]
fn only_an_earlier_page_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let request = request(folder.path(), "absent = \"no data\"", "{}");
    for _ in 0..2 {
        reproduce(&request).unwrap();
    }
    std::fs::write(request.out.join("letter.txt"), "precious").unwrap();
    let error = reproduce(&request).err().unwrap().to_string();
    assert!(error.contains("letter.txt"), "{error}");
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("index.html"), "precious").unwrap();
    assert!(reproduce(&Request { out: other.clone(), ..request }).is_err());
    assert_eq!(std::fs::read_to_string(other.join("index.html")).unwrap(), "precious");
}

#[test]
fn a_command_that_does_not_answer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let body = "[[chapter.figure.computed]]\nwhat = \"a\"\ntheirs = 1\nrounding = 0.5\ncommand = \"x --json\"\nat = \"/a\"";
    for (answer, says) in [("nothing", "not JSON"), ("{}", "no number /a")] {
        let request = request(folder.path(), body, answer);
        let error = format!("{:#}", reproduce(&request).err().unwrap());
        assert!(error.contains("concertina x --json") && error.contains(says), "{error}");
    }
    let mut request = request(folder.path(), body, "{}");
    request.chapters = vec!["two".to_owned()];
    let error = reproduce(&request).err().unwrap().to_string();
    assert!(error.contains("write one of: one"), "{error}");
}
