//! `concertina serve --s3 URL`: a bucket as one argument.

use anyhow::{Context, bail};
use url::Url;

/// The settings of `s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME]`.
///
/// # Errors
///
/// What is wrong with the URL, and how it is written.
pub fn overrides(text: &str) -> anyhow::Result<Vec<String>> {
    let form =
        "write s3://BUCKET, s3://BUCKET/PREFIX or s3://BUCKET?endpoint=https://HOST&region=NAME";
    let url = Url::parse(text).with_context(|| format!("--s3 {text:?} is not a URL; {form}"))?;
    if url.scheme() != "s3" || !url.username().is_empty() || url.password().is_some() {
        bail!(
            "--s3 {text:?} is not the address of a bucket; {form}. Keys are taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        );
    }
    let bucket = url.host_str().unwrap_or_default();
    if bucket.is_empty() {
        bail!("--s3 {text:?} names no bucket; {form}");
    }
    let set = |key: &str, value: &str| format!("{key}={}", toml::Value::String(value.to_owned()));
    let mut sets = vec![set("origin.kind", "s3"), set("origin.bucket", bucket)];
    let prefix = url.path().trim_matches('/');
    if !prefix.is_empty() {
        let prefix = percent_encoding::percent_decode_str(prefix).decode_utf8();
        let prefix = prefix.with_context(|| format!("the prefix in --s3 {text:?} is not UTF-8"))?;
        sets.push(set("origin.prefix", &format!("{prefix}/")));
    }
    for (name, value) in url.query_pairs() {
        match &*name {
            "endpoint" => {
                sets.push(set("origin.endpoint", &value));
                // Who writes http:// here has decided.
                if value.starts_with("http://") {
                    sets.push("origin.allow_http=true".to_owned());
                }
            }
            "region" => sets.push(set("origin.region", &value)),
            other => bail!("--s3 has the unknown parameter {other:?}; {form}"),
        }
    }
    Ok(sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_as_settings() {
        let sets =
            overrides("s3://photos/2026/raw?endpoint=http://127.0.0.1:9000&region=eu-1").unwrap();
        let expected = [
            "origin.kind=\"s3\"",
            "origin.bucket=\"photos\"",
            "origin.prefix=\"2026/raw/\"",
            "origin.endpoint=\"http://127.0.0.1:9000\"",
            "origin.allow_http=true",
            "origin.region=\"eu-1\"",
        ];
        assert_eq!(sets, expected);
        assert_eq!(overrides("s3://photos").unwrap().len(), 2);
        for (wrong, why) in [
            ("photos", "not a URL"),
            ("https://photos", "not the address of a bucket"),
            ("s3://key:secret@photos", "AWS_SECRET_ACCESS_KEY"),
            ("s3:///x", "names no bucket"),
            ("s3://photos?endpont=x", "unknown parameter"),
        ] {
            let error = format!("{:#}", overrides(wrong).unwrap_err());
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
