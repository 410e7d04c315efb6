//! The parameters of a query, with decoded names: a name is compared with nothing before it is decoded, as `s3s` does it too.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// A parameter.
pub struct Parameter<'a> {
    /// Its name, decoded.
    pub name: Cow<'a, [u8]>,
    /// Its value as it stands in the query; empty if there is none.
    pub encoded: &'a str,
}

impl Parameter<'_> {
    /// Whether this is its name.
    pub fn is(&self, name: &str) -> bool {
        *self.name == *name.as_bytes()
    }

    /// Its value, decoded.
    pub fn value(&self) -> Vec<u8> {
        percent_decode_str(self.encoded).collect()
    }
}

/// The parameters of a query, in order.
pub fn parameters(query: Option<&str>) -> impl Iterator<Item = Parameter<'_>> {
    query.unwrap_or("").split('&').map(|pair| {
        let (name, encoded) = pair.split_once('=').unwrap_or((pair, ""));
        Parameter { name: percent_decode_str(name).into(), encoded }
    })
}

/// Whether a query has a parameter of this name.
pub fn has(query: Option<&str>, name: &str) -> bool {
    parameters(query).any(|one| one.is(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded() {
        let query = Some("X-Amz-%53ignature=a%20b&%74agging&a==&");
        let all: Vec<(String, &str)> = parameters(query)
            .map(|one| (String::from_utf8_lossy(&one.name).into_owned(), one.encoded))
            .collect();
        let expected = [("X-Amz-Signature", "a%20b"), ("tagging", ""), ("a", "="), ("", "")];
        assert_eq!(all, expected.map(|(name, value)| (name.to_owned(), value)));
        assert!(has(query, "tagging") && !has(query, "%74agging") && !has(None, "tagging"));
        assert_eq!(parameters(query).next().unwrap().value(), b"a b");
    }
}
