//! Circles of files within a crate. Cargo refuses circles of crates, but within one anything may name anything, and files
//! that name each other can neither be read one after the other nor be moved to a crate of their own.
//!
//! A file has an edge to the file that a path in it leads to, in a `use` or in a body: that of the longest prefix of the
//! path which is a module. So a parent that exports what a child defines, and a child that takes it by `super::`, are a
//! circle: the child can use its sibling instead. A declaration of a child (`mod x;`) does not count as a use.
//! Code of tests is left out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::iter::Peekable;
use std::path::Path;
use std::slice::Iter;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tidy::{relative_name, root, sources};

/// The segments of a module's path below the crate's root.
type Module = Vec<String>;

/// What a file's tokens say: which paths it names, and which of its modules are for tests.
#[derive(Default)]
struct Scan {
    /// The module in which it stands, and the path as it is written.
    paths: Vec<(Module, Vec<String>)>,
    test_modules: BTreeSet<Module>,
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

type Tokens<'a> = Peekable<Iter<'a, TokenTree>>;

/// Takes `::` if it is next.
fn takes_colons(tokens: &mut Tokens<'_>) -> bool {
    let mut ahead = tokens.clone();
    let there = is_punct(ahead.next(), ':') && is_punct(ahead.next(), ':');
    if there {
        *tokens = ahead;
    }
    there
}

/// Whether the attribute in these brackets keeps what follows for tests.
fn is_cfg_test(brackets: TokenStream) -> bool {
    let text = brackets.to_string().replace(' ', "");
    text == "test" || (text.starts_with("cfg(") && text.contains("test") && !text.contains("not("))
}

impl Scan {
    fn read(&mut self, stream: TokenStream, module: &Module) {
        let all: Vec<TokenTree> = stream.into_iter().collect();
        let mut tokens = all.iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if let Some(TokenTree::Group(group)) = tokens.peek()
                        && group.delimiter() == Delimiter::Bracket
                    {
                        tokens.next();
                        if is_cfg_test(group.stream()) {
                            self.skip_item(&mut tokens, module);
                        }
                    }
                }
                TokenTree::Ident(word) => self.read_word(&word.to_string(), &mut tokens, module),
                TokenTree::Group(group) => self.read(group.stream(), module),
                _ => {}
            }
        }
    }

    fn read_word(&mut self, word: &str, tokens: &mut Tokens<'_>, module: &Module) {
        match word {
            "use" => self.read_use(Vec::new(), tokens, module),
            // `pub(in crate::module)` says who may see, and uses nothing.
            "pub" => {
                tokens.next_if(|next| {
                    matches!(next, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
                });
            }
            "mod" => {
                let Some(name) = ident(tokens.peek().copied()) else { return };
                tokens.next();
                if let Some(TokenTree::Group(group)) = tokens.peek() {
                    let inner = [&module[..], &[name]].concat();
                    self.read(group.stream(), &inner);
                    tokens.next();
                }
            }
            _ => {
                let mut path = vec![word.to_owned()];
                while takes_colons(tokens) {
                    match ident(tokens.peek().copied()) {
                        Some(name) => path.push(name),
                        None => break,
                    }
                    tokens.next();
                }
                if path.len() > 1 {
                    self.paths.push((module.clone(), path));
                }
            }
        }
    }

    /// Reads a tree of `use` up to its end, a comma or a semicolon.
    fn read_use(&mut self, before: Vec<String>, tokens: &mut Tokens<'_>, module: &Module) {
        let mut path = before;
        let mut open = true;
        for token in tokens.by_ref() {
            match token {
                TokenTree::Ident(word) if open => {
                    // `as` gives a name and leads nowhere.
                    open = word != "as";
                    if open && word != "self" || path.is_empty() {
                        path.push(word.to_string());
                    }
                }
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    let mut inner = inner.iter().peekable();
                    while inner.peek().is_some() {
                        self.read_use(path.clone(), &mut inner, module);
                    }
                    open = false;
                }
                TokenTree::Punct(punct) if [',', ';'].contains(&punct.as_char()) => break,
                _ => {}
            }
        }
        self.paths.push((module.clone(), path));
    }

    /// Passes over an item that is for tests.
    fn skip_item(&mut self, tokens: &mut Tokens<'_>, module: &Module) {
        let mut is_use = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(word) if word == "use" => is_use = true,
                TokenTree::Ident(word) if word == "mod" => {
                    let name = ident(tokens.peek().copied()).into_iter().collect();
                    self.test_modules.insert([module.clone(), name].concat());
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => return,
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is_use => {
                    return;
                }
                _ => {}
            }
        }
    }
}

/// The files of a crate by their modules.
struct Files {
    by_module: BTreeMap<Module, String>,
}

impl Files {
    /// The file of the longest prefix of a path that is a module.
    fn file_of(&self, path: &[String]) -> Option<&String> {
        (0..=path.len()).rev().find_map(|length| self.by_module.get(&path[..length]))
    }

    /// The path from the crate's root of one that stands in a module; `None` if it leads out of the crate or is a
    /// name of the file's own.
    fn resolved(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let mut base = module.clone();
        let mut rest = path;
        match rest.first().map(String::as_str)? {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|word| word == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            child => {
                base.push(child.to_owned());
                self.by_module.get(&base)?;
                rest = &rest[1..];
            }
        }
        Some([base, rest.to_vec()].concat())
    }
}

/// The module of a file, by its path below `src`.
fn module_of(path: &Path) -> Module {
    let mut module: Module = path
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if ["mod", "lib", "main"].contains(&module.last().map_or("", String::as_str)) {
        module.pop();
    }
    module
}

/// For each file of a folder `src` those that it uses.
fn edges(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Files { by_module: BTreeMap::new() };
    let mut read = Vec::new();
    for path in sources(src) {
        // The binary beside a library is a crate of its own, of a file.
        if path.ends_with("src/main.rs") && src.join("lib.rs").exists() {
            continue;
        }
        let module = module_of(path.strip_prefix(src).unwrap());
        let text = fs::read_to_string(&path).unwrap();
        let mut scan = Scan::default();
        scan.read(text.parse().unwrap(), &module);
        files.by_module.insert(module.clone(), relative_name(&path));
        read.push((module, scan));
    }
    let for_tests: BTreeSet<Module> =
        read.iter().flat_map(|(_, scan)| scan.test_modules.clone()).collect();
    let is_for_tests = |module: &Module| {
        let name = module.last().map_or("", String::as_str);
        (1..=module.len()).any(|length| for_tests.contains(&module[..length]))
            || name == "tests"
            || name.ends_with("_tests")
    };
    let mut edges = BTreeMap::new();
    for (module, scan) in read.iter().filter(|(module, _)| !is_for_tests(module)) {
        let file = &files.by_module[module];
        let to: BTreeSet<String> = scan
            .paths
            .iter()
            .filter_map(|(place, path)| files.resolved(place, path))
            .filter_map(|path| files.file_of(&path).cloned())
            .filter(|to| to != file)
            .collect();
        edges.insert(file.clone(), to);
    }
    edges
}

/// The files that can be reached from one.
fn reached(edges: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for to in edges.get(file).into_iter().flatten() {
            if seen.insert(to.clone()) {
                open.push(to);
            }
        }
    }
    seen
}

/// The sets of files that all reach each other, of two and more.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<String>> =
        edges.keys().map(|file| (file, reached(edges, file))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (file, to) in &reach {
        if to.contains(*file) && !found.iter().any(|circle| circle.contains(*file)) {
            let back = |other: &&String| reach[other].contains(*file);
            found.push(to.iter().filter(back).cloned().collect());
        }
    }
    found
}

/// A shortest way from a file back to itself.
fn shortest(edges: &BTreeMap<String, BTreeSet<String>>, from: &str) -> Vec<String> {
    let mut open = VecDeque::from([vec![from.to_owned()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = open.pop_front() {
        for to in way.last().and_then(|last| edges.get(last)).into_iter().flatten() {
            let on = [&way[..], std::slice::from_ref(to)].concat();
            if to == from {
                return on;
            }
            if seen.insert(to) {
                open.push_back(on);
            }
        }
    }
    Vec::new()
}

#[test]
fn no_circle_of_files() {
    let mut folders: Vec<_> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .chain([root().join("experiments")])
        .map(|path| path.join("src"))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    let edges: BTreeMap<_, _> = folders.iter().flat_map(|src| edges(src)).collect();
    if let Some(circle) = circles(&edges).first() {
        let file = circle.first().unwrap();
        panic!(
            "a circle of files: {}\nMove what both use to a file beneath them, or use the sibling instead of the \
             parent's name for it.",
            shortest(&edges, file).join(" uses ")
        );
    }
}

#[test]
fn paths_lead_to_the_files_of_their_modules() {
    let text = "use crate::a::{self, b::{X as Y}, C}; use super::{D, d}; use std::fs; mod own;\n\
        pub(in crate::hidden) fn f() -> own::T { vec![crate::e::g(), self::own::h()] }\n\
        /// crate::comment::x\n#[cfg(test)] mod tests { use crate::z; }\n#[cfg(test)] use crate::y::{q};\n\
        fn after() { crate::last::k::<crate::n::N>() } mod inner { use super::super::up::V; }";
    let module = vec!["m".to_owned(), "n".to_owned()];
    let mut scan = Scan::default();
    scan.read(text.parse().unwrap(), &module);
    let name = |path: &str| -> Module { path.split("::").map(str::to_owned).collect() };
    let modules =
        ["a", "a::b", "d", "e", "m", "m::n", "m::n::own", "last", "n", "m::up", "hidden", "y", "z"];
    let by_module = modules.map(|path| (name(path), path.to_owned())).into_iter().collect();
    let files = Files { by_module };
    let to: BTreeSet<&str> = scan
        .paths
        .iter()
        .filter_map(|(place, path)| files.resolved(place, path))
        .filter_map(|path| files.file_of(&path).map(String::as_str))
        .collect();
    let expected = ["a", "a::b", "e", "last", "m", "m::n::own", "m::up", "n"];
    assert_eq!(to, BTreeSet::from(expected));
    assert_eq!(scan.test_modules, BTreeSet::from([name("m::n::tests")]));
}
