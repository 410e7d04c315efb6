//! Keys that are no paths of files: markers of folders, empty parts, parts `.`, long parts.

use super::clients::{client, gateway, python, script, succeed};
use super::{ADMIN, Front, before, before_address};
use crate::origin_s3::Store;
use crate::origin_s3::text_store::TextStore;
use crate::serve_client::Client;

fn front_of(sets: &[String], start: impl Fn(&[&str]) -> Front) -> Front {
    start(&sets.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn boto3_has_keys_of_any_text() {
    const TEST: &str = "serve_s3::names::boto3_has_keys_of_any_text";
    let (Some(python), Some(store)) = (python(TEST), Store::start(TEST)) else { return };
    let texts = before_address(&TextStore::start().address);
    let fronts = [
        (Front::start(&[]), "texts"),
        (front_of(&texts, Front::start), "texts"),
        (gateway(&[]), "texts"),
        (front_of(&before(&store), gateway), "files"),
    ];
    for (front, kind) in fronts {
        let mut command = client(python.clone(), ADMIN, front.folder.path());
        let endpoint = format!("http://{}", front.address);
        let told = succeed(command.arg(script("s3_names.py")).args([&*endpoint, kind]), &front);
        assert_eq!(told.trim(), "ok");
        assert!(!front.log().contains("panicked"), "{}", front.log());
    }
}

/// Clients of HTTP normalise parts `.` of a path. With the slash before or after escaped there is none.
#[test]
fn http_has_the_same_keys() {
    let store = TextStore::start();
    let keys = [
        ("photos/", "photos/"),
        ("photos%2F1", "photos/1"),
        ("a//b", "a//b"),
        ("a/b", "a/b"),
        ("/a", "/a"),
        ("./x", "./x"),
        (".%2Fy", "./y"),
        ("d%2F.%2Fe", "d/./e"),
    ];
    for (_, key) in keys {
        store.put(key, key.as_bytes());
    }
    let texts = before_address(&store.address);
    for front in [front_of(&texts, Front::start), front_of(&texts, gateway)] {
        let mut http = Client::connect(front.http.parse().unwrap());
        for (path, key) in keys {
            let path = format!("/objects/{path}");
            for _ in 0..2 {
                let found = http.get(&path);
                assert_eq!((found.status, &*found.text()), (200, key), "{path}");
            }
            assert_eq!(http.put(&path, key.as_bytes()).status, 200, "{path}");
            assert_eq!(http.send("HEAD", &path, &[], None).unwrap().status, 200, "{path}");
        }
        let listed = http.get("/objects").text();
        for (_, key) in keys {
            assert!(listed.contains(&format!("{key:?}")), "{key}: {listed}");
        }
    }
    let mut names = keys.map(|(_, key)| key.to_owned()).to_vec();
    names.push("!key/identity".to_owned());
    names.sort();
    assert_eq!(store.names(), names, "each under its own name");
    let front = front_of(&texts, Front::start);
    let mut http = Client::connect(front.http.parse().unwrap());
    for (path, _) in keys {
        let path = format!("/objects/{path}");
        assert_eq!(http.send("DELETE", &path, &[], None).unwrap().status, 204, "{path}");
        assert_eq!(http.get(&path).status, 404, "{path}");
    }
    assert_eq!(store.names(), ["!key/identity"]);
}
