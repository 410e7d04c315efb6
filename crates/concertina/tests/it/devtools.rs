//! Chromium, driven through a pipe: pages are opened, clicked and looked at as a person would.
//!
//! `--remote-debugging-pipe` speaks the DevTools protocol on the descriptors 3 and 4, JSON with a zero byte behind each message, so no
//! WebSocket is needed.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::serve_client::LONGEST;

/// A browser with one page.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    read: Vec<u8>,
    id: u64,
    session: String,
    /// What went wrong in the page: exceptions, and what the policy refused.
    pub errors: Vec<String>,
    /// Requests of the page that failed or were refused. The browser's console shows each as an error.
    pub refused: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts one; `None` if Chromium is not installed.
    pub fn start() -> Option<Browser> {
        let profile = tempfile::tempdir().unwrap();
        let installed = Command::new("chromium").arg("--version").stdout(Stdio::null()).status();
        if !installed.is_ok_and(|status| status.success()) {
            return None;
        }
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "chromium"])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut browser = Browser {
            child,
            input,
            output,
            read: Vec::new(),
            id: 0,
            session: String::new(),
            errors: Vec::new(),
            refused: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.call(domain, json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// The same, or the error of the browser.
    fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.id += 1;
        let mut message = json!({ "id": self.id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        self.input.write_all(message.to_string().as_bytes()).unwrap();
        self.input.write_all(&[0]).unwrap();
        loop {
            let reply = self.message();
            if reply["id"] == self.id {
                let error = reply["error"].clone();
                return if error.is_null() { Ok(reply["result"].clone()) } else { Err(error) };
            }
            let params = &reply["params"];
            match reply["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.errors.push(params.to_string()),
                Some("Log.entryAdded") if params["entry"]["source"] == "network" => {
                    self.refused.push(params.to_string());
                }
                Some("Log.entryAdded") => self.errors.push(params.to_string()),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> Value {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.read.drain(..=end).collect();
                return serde_json::from_slice(&message[..end]).unwrap();
            }
            let mut piece = [0; 1 << 16];
            let count = self.output.read(&mut piece).unwrap();
            assert!(count > 0, "the browser ended");
            self.read.extend_from_slice(&piece[..count]);
        }
    }

    /// Sets the size of the window, and whether the user prefers dark pages.
    pub fn look(&mut self, width: u32, height: u32, is_dark: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let value = if is_dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Opens an address.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let reply = self.call("Runtime.evaluate", asked);
        assert!(reply["exceptionDetails"].is_null(), "{expression}: {reply}");
        reply["result"]["value"].clone()
    }

    /// Loads the page again.
    pub fn reload(&mut self) {
        self.value("document.body.dataset.isOld = 'true'");
        self.call("Page.reload", json!({}));
        self.until("the page is loaded again", "document.body && !document.body.dataset.isOld");
    }

    /// The text of the page.
    pub fn text(&mut self) -> String {
        self.value("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true. While a page is loaded it is not.
    pub fn until(&mut self, what: &str, expression: &str) {
        let start = std::time::Instant::now();
        let asked =
            json!({ "expression": format!("Boolean({expression})"), "returnByValue": true });
        let is_true =
            |reply: Result<Value, Value>| reply.is_ok_and(|reply| reply["result"]["value"] == true);
        while !is_true(self.try_call("Runtime.evaluate", asked.clone())) {
            assert!(start.elapsed() < LONGEST, "waited {LONGEST:?}: {what}: {}", self.text());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses the mouse where an element is; again if it has moved between the look and the press, as a page under load does.
    pub fn click(&mut self, selector: &str) {
        let place = format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{ block: 'center' }}); \
             const b = e.getBoundingClientRect(); const at = [b.x + b.width / 2, b.y + b.height / 2]; \
             document.body.dataset.clicked = 'not yet'; \
             e.addEventListener('click', () => {{ document.body.dataset.clicked = 'yes'; }}, {{ capture: true, once: true }}); \
             return {{ x: at[0], y: at[1], hit: e.contains(document.elementFromPoint(...at)) }}; }})()"
        );
        let start = std::time::Instant::now();
        loop {
            let place = self.value(&place);
            for kind in ["mousePressed", "mouseReleased"] {
                let event = json!({ "type": kind, "x": place["x"], "y": place["y"], "button": "left", "clickCount": 1 });
                self.call("Input.dispatchMouseEvent", event);
            }
            // A click that opens another page replaces the document, which had the mark.
            if self.value("document.body?.dataset.clicked ?? ''") != "not yet" {
                return;
            }
            assert!(
                start.elapsed() < LONGEST,
                "{selector} is not where a mouse reaches it: {place}"
            );
        }
    }

    /// Chooses files in a field for files.
    pub fn choose(&mut self, selector: &str, files: &[PathBuf]) {
        let document = self.call("DOM.getDocument", json!({}));
        let root = &document["root"]["nodeId"];
        let field = self.call("DOM.querySelector", json!({ "nodeId": root, "selector": selector }));
        let asked = json!({ "nodeId": field["nodeId"], "files": files });
        self.call("DOM.setFileInputFiles", asked);
    }

    /// Drops a file or a folder of the disk on an element.
    pub fn drop_on(&mut self, selector: &str, path: &Path) {
        let place = format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{ block: 'center' }}); \
             const b = e.getBoundingClientRect(); return {{ x: b.x + b.width / 2, y: b.y + 10 }}; }})()"
        );
        let place = self.value(&place);
        for kind in ["dragEnter", "dragOver", "drop"] {
            let data = json!({ "items": [], "files": [path], "dragOperationsMask": 1 });
            let event = json!({ "type": kind, "x": place["x"], "y": place["y"], "data": data });
            self.call("Input.dispatchDragEvent", event);
        }
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "ArrowLeft" => 37,
            "ArrowRight" => 39,
            other => panic!("no code for {other}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if key == "Enter" && kind == "keyDown" {
                event["text"] = "\r".into();
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Writes what the page looks like as a PNG.
    pub fn picture(&mut self, path: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = base64(shot["data"].as_str().unwrap());
        std::fs::write(path, bytes).unwrap();
    }
}

/// The bytes of a text in base 64.
fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        held = (held << 6 | u32::from(digit(byte))) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    bytes
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
