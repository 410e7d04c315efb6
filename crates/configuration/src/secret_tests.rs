//! No mistake around a secret shows it. The secrets are those of the sections' declarations.

use toml::Table;

use super::config::SECTIONS;
use super::*;

const HUSH: &str = "TOPSECRETKEY";

/// Texts of a section with the value `SECRET` at `KEY`, and a mistake in it or beside it.
const WRONG: &[&str] = &[
    // Strings that do not end, or end wrongly.
    "[SECTION]\nKEY = \"SECRET\n",
    "[SECTION]\nKEY = \"SECRET\nother = 1\n[x]\n",
    "[SECTION]\nKEY = 'SECRET\n",
    "[SECTION]\nKEY = \"SECRET'\n",
    "[SECTION]\nKEY = \"\"\"SECRET\n",
    "[SECTION]\nKEY = '''SECRET\nSECRET=\n",
    "[SECTION]\nKEY = \"\"\"\nSECRET = 1\nSECRET\\q\n\"\"\"\n",
    "[SECTION]\nKEY = \"\"\"\nKEY = SECRET\\q\n\"\"\"\n",
    "[SECTION]\nKEY = \"SECRET\\q\"\n",
    "[SECTION]\nKEY = \"\\uD800SECRET\"\n",
    "[SECTION]\nKEY = \"SECRET\u{1}\"\n",
    "[SECTION]\r\nKEY = \"SECRET\r\nother = 1\r\n",
    "[SECTION]\nKEY = \"SECRET",
    // Values that are not strings.
    "[SECTION]\nKEY = SECRET\n",
    "[SECTION]\nKEY = SECRET # \"\n",
    "[SECTION]\nKEY SECRET\n",
    "[SECTION]\nKEY: \"SECRET\"\n",
    "[SECTION]\nKEY = = \"SECRET\"\n",
    "[SECTION]\nKEY = \"SECRET\" \"SECRET\"\n",
    "[SECTION]\nKEY = \"SECRET\" = 1\n",
    "[SECTION]\nKEY = \"SECRET\"SECRET\n",
    "[SECTION]\nKEY = 1SECRET\n",
    "[SECTION]\nKEY = 2026-13-45TSECRET\n",
    "[SECTION]\nKEY = [\"SECRET\"\n",
    "[SECTION]\nKEY = [\"SECRET\"]\n",
    "[SECTION]\nKEY = { a = \"SECRET\"\n",
    "[SECTION]\nKEY = { a = \"SECRET\" }\n",
    "[SECTION]\nKEY.a = \"SECRET\"\n",
    "[SECTION.KEY]\na = \"SECRET\"\n",
    "[[SECTION.KEY]]\na = \"SECRET\"\n",
    // Ways to write the key.
    "SECTION.KEY = \"SECRET\n",
    "\"SECTION\".\"KEY\" = \"SECRET\n",
    "SECTION = { KEY = \"SECRET\"\n",
    "SECTION = { KEY = \"SECRET\", \n nonsense }\n",
    "SECTION = { KEY = \"SECRET\" } }\n",
    "[SECTION]\n\"KEY\" = \"SECRET\n",
    "[SECTION]\n  KEY\t=\"SECRET\n",
    "[SECTION]\nmKEY = \"SECRET\n",
    "[SECTION]\nmKEY = \"SECRET\"\n",
    "[SECTION]\nKEY KEY = \"SECRET\"\n",
    "KEY = \"SECRET\"\n",
    "[mSECTION]\nKEY = \"SECRET\"\n",
    "[[SECTION]]\nKEY = \"SECRET\"\n",
    "SECTION = \"SECRET\"\n",
    "SECTION = [\"SECRET\"]\n",
    "SECTION = [\"SECRET\", { KEY = \"SECRET\" }]\n",
    // A mistake in another line.
    "[SECTION]\nKEY = \"SECRET\"\nother = \n",
    "[SECTION]\nother = \nKEY = \"SECRET\"\n",
    "[SECTION]\nKEY = \"SECRET\"\nKEY = \"SECRET\"\n",
    "[SECTION]\nKEY = \"SECRET\"\n[SECTION]\n",
    "[SECTION\nKEY = \"SECRET\"\n",
    "[SECTION]\nKEY = \"SECRET\" # \u{7f}\n",
    "[SECTION]\n# KEY = \"SECRET\" \u{1}\n",
    "[SECTION]\nKEY = \"SECRET\"\n[node]\nrevalidate_s = \"x\"\n",
    "[SECTION]\nKEY = \"SECRET\"\n[node]\nrevalidate_s = -1\n",
];

/// Overrides with a mistake.
const WRONG_SET: &[&str] = &[
    "SECTION.KEY SECRET",
    "SECTION.KEY:SECRET",
    "SECTION.KEY SECRET=",
    "SECTION.KEY.0=SECRET",
    "SECTION.KEY=[\"SECRET\"]",
    "SECTION.KEY={a=\"SECRET\"}",
    "SECTION.mKEY=SECRET",
    "SECTION=SECRET",
    "SECTION=[\"SECRET\"]",
    "KEY=SECRET",
    "SECRET",
    "SECRET=",
    "=SECRET",
];

fn with(pattern: &str, place: &str) -> String {
    let (section, key) = place.split_once('.').unwrap();
    pattern.replace("SECTION", section).replace("KEY", key).replace("SECRET", HUSH)
}

/// Everything that a configuration is shown as.
fn all_prints(config: &Config) -> String {
    format!("{}{}{config:?}{:?}", config.print(), config.as_table(), config.secrets())
}

#[test]
fn the_secrets_are_the_keys_of_their_type() {
    let config = Config::default();
    let places: Vec<String> = config.secrets().into_iter().map(|secret| secret.place).collect();
    let known = [
        "serve.token",
        "origin.secret_access_key",
        "origin.session_token",
        "traces.token",
        "cluster.token",
    ];
    assert_eq!(places, known);
    // A key whose name says that it is a secret has the type of one.
    for (section, _, keys) in SECTIONS {
        for (key, _) in *keys {
            let named = ["token", "secret", "password", "passphrase", "credential"];
            let place = format!("{section}.{key}");
            // The name of a header is not what it has.
            let is_secret =
                named.iter().any(|name| key.contains(name)) && !key.ends_with("_header");
            assert!(!is_secret || places.contains(&place), "{place} can be printed");
        }
    }
}

#[test]
fn no_syntax_error_and_no_wrong_type_shows_a_secret() {
    for secret in Config::default().secrets() {
        let place = &secret.place;
        let told = |text: &str, set: &[String]| {
            let Err(error) = Config::parse(text, "test.toml", set) else {
                panic!("no mistake in {text:?} with {set:?}");
            };
            let told = format!("{error}\n{error:?}");
            assert!(!told.contains(HUSH), "{text:?} with {set:?} is answered {told}");
        };
        for pattern in WRONG {
            told(&with(pattern, place), &[]);
        }
        for pattern in WRONG_SET {
            let set = [with(pattern, place)];
            told("", &set);
            // Beside a value in the file, into which the path may lead.
            told(&with("[SECTION]\nKEY = \"SECRET\"\n", place), &set);
        }
    }
}

#[test]
fn a_secret_that_is_read_is_shown_nowhere() {
    for secret in Config::default().secrets() {
        let text = with("[SECTION]\nKEY = \"SECRET\"\n", &secret.place);
        let config = Config::parse(&text, "", &[]).unwrap();
        let read = config.secrets().into_iter().find(|it| it.place == secret.place).unwrap();
        assert_eq!(read.value.unwrap().expose(), HUSH, "{}", secret.place);
        assert!(!all_prints(&config).contains(HUSH), "{}", secret.place);
        let key = secret.place.split('.').nth(1).unwrap();
        assert!(config.print().contains(&format!("# {key} =   (set; not shown)\n")));
        // What processes share does not take it away.
        let shared: Table = "[gateway]\nhedge_share = 0.5\n".parse().unwrap();
        let both = config.with_shared(&shared).unwrap();
        assert_eq!(both.serve.token, config.serve.token);
        assert_eq!((&both.origin, &both.cluster), (&config.origin, &config.cluster));
        assert!(!all_prints(&both).contains(HUSH));
    }
}

/// URLs are shown in messages, logs and the status.
#[test]
fn a_url_with_a_password_is_refused_without_showing_it() {
    for text in [
        "[origin]\nkind = \"s3\"\nbucket = \"b\"\nendpoint = \"https://user:SECRET@host\"\n",
        "[origin]\nkind = \"s3\"\nbucket = \"b\"\nendpoint = \"user:SECRET@host\"\n",
        "[membership]\nkind = \"etcd\"\nendpoints = [\"http://user:SECRET@host:2379\"]\n",
        "[membership]\nkind = \"etcd\"\nendpoints = [\"user:SECRET@host\"]\n",
        "[traces]\nendpoint = \"http://user:SECRET@host:4318\"\n",
    ] {
        let error = Config::parse(&text.replace("SECRET", HUSH), "t.toml", &[]).unwrap_err();
        let told = format!("{error}\n{error:?}");
        assert!(told.contains("must not contain a user") && !told.contains(HUSH), "{told}");
    }
}

/// A syntax error is told by its place, and by its key if that is a known one.
#[test]
fn a_syntax_error_has_its_place() {
    for (text, place) in [
        ("[serve]\nlisten = 5 5\n", "t.toml, line 2, column 10 (`listen`): "),
        ("[origin]\n\nsecret_acces_key = \"x\n", "t.toml, line 3, column "),
        ("[serve]\r\nthreads = \r\n", "t.toml, line 2, column 11 (`threads`): "),
        ("[serve]\nhosts = \"äö\" 1\n", "t.toml, line 2, column 14 (`hosts`): "),
        ("a = \"", "t.toml, line 1, column "),
    ] {
        let told = Config::parse(text, "t.toml", &[]).unwrap_err().to_string();
        assert!(told.contains(place), "{text:?}: {told}");
    }
}
