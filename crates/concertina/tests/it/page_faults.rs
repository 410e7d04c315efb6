//! The page of a server that lost a disk, and then its origin.

use std::fs;

use crate::devtools::Browser;
use crate::left_out::left_out;
use crate::page::{QUICK, fill, get, loaded, picture};
use crate::serve_client::{start, until};

#[test]
fn a_server_that_lost_a_disk_and_its_origin_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &QUICK);
    let address = server.address();
    fill(address);
    let Some(mut browser) = Browser::start() else {
        return left_out("page_faults::a_server_that_lost", "chromium is not installed");
    };
    browser.look(1200, 1000, false);
    let faults = "document.getElementById('faults')";
    loaded(address, || {
        browser.open(&format!("http://{address}/"));
        browser.until("the page is drawn", "document.body?.dataset.drawn");
        browser.until("its role is known", "document.getElementById('role').innerText !== ''");
        assert_eq!(browser.value(&format!("{faults}.hidden")), true, "nothing is wrong yet");
        // A disk loses its bytes: reads of it fail, and it is taken out.
        for entry in fs::read_dir(folder.path().join("device/02")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "seg") {
                fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
            }
        }
        until("the disk is taken out", || {
            get(address, "/admin/tiers")["devices"][2]["state"] == "out"
        });
        let says = format!("{faults}.innerText.includes('device/2 failed')");
        browser.until("the page says so", &says);
        browser.until("plots are drawn", "document.querySelectorAll('#now canvas').length >= 2");
        picture(&mut browser, "page-lost-disk.png");
    });
    fs::rename(folder.path().join("origin"), folder.path().join("away")).unwrap();
    browser.until("the origin is lost", &format!("{faults}.innerText.includes('origin')"));
    fs::rename(folder.path().join("away"), folder.path().join("origin")).unwrap();
    browser.until("it is there again", &format!("!{faults}.innerText.includes('origin')"));
    assert_eq!(browser.errors, Vec::<String>::new());
    server.stop();
}
