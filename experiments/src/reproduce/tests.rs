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
    for (body, says) in [
        (String::new(), "not both"),
        (format!("absent = \"no data\"\n{computed}"), "not both"),
        (computed.replace("0.5", "0"), "rounding"),
        (computed.replace("at =", "where ="), "unknown field"),
    ] {
        let error = format!("{:#}", Catalogue::parse(&catalogue(&body)).unwrap_err());
        assert!(error.contains(says), "{body}: {error}");
    }
    for body in ["absent = \"no data\"", computed] {
        Catalogue::parse(&catalogue(body)).unwrap();
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
