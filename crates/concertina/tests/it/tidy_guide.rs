//! The guide is whole: every page is in its contents, and every link between documents leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::tidy::{relative_name, root};

/// The documents: those of the root, of `docs` and of the experiments.
fn documents() -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![
        root(),
        root().join("docs"),
        root().join("docs/decisions"),
        root().join("experiments"),
    ];
    let experiments = fs::read_dir(root().join("experiments")).unwrap();
    folders.extend(experiments.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()));
    for folder in folders {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        all.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    all
}

/// The targets of the links of a document, without those of code blocks and of other sites.
fn links(text: &str) -> Vec<String> {
    let prose = text.lines().filter(|line| !line.starts_with("    "));
    let mut found = Vec::new();
    for line in prose {
        for part in line.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')')
                && !target.contains("://")
                && !target.contains(' ')
            {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// The anchors of a document's headings, as GitHub and mdBook make them: words in small letters with `-` between them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept =
                heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// The path without `..` and `.`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let (mut broken, mut followed) = (Vec::new(), 0);
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            followed += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => document.clone(),
                path => normal(&document.parent().unwrap().join(path)),
            };
            let is_document = target.extension().is_some_and(|end| end == "md");
            let leads = target.exists()
                && (anchor.is_empty()
                    || !is_document
                    || anchors(&fs::read_to_string(&target).unwrap()).contains(anchor));
            if !leads {
                broken.push(format!("{}: {link}", relative_name(&document)));
            }
            // The book has the files of `docs` alone: what lies beside it is named, not linked.
            let book = root().join("docs");
            if document.starts_with(&book) && !target.starts_with(&book) {
                broken.push(format!("{}: {link} leaves the book", relative_name(&document)));
            }
        }
    }
    assert!(followed > 200, "{followed} links");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_page_is_in_the_contents_of_the_guide() {
    let docs = root().join("docs");
    let contents = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = links(&contents.replace("  - ", "- "))
        .iter()
        .map(|link| normal(&docs.join(link)))
        .collect();
    let pages: BTreeSet<PathBuf> = documents()
        .into_iter()
        .filter(|path| path.starts_with(&docs) && !path.ends_with("SUMMARY.md"))
        .map(|path| normal(&path))
        .collect();
    assert_eq!(listed, pages, "left: in docs/SUMMARY.md; right: in the folder");
}

#[test]
fn links_and_anchors_are_found_where_they_are() {
    let text =
        "# The `model` file: keys\n\n[a](b.md#c), [d](https://e) and ![f](g.png)\n    [h](i)\n";
    assert_eq!(links(text), ["b.md#c", "g.png"]);
    assert_eq!(anchors(text), BTreeSet::from(["the-model-file-keys".to_owned()]));
}
