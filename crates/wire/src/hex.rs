//! Hashes as hexadecimal digits.

/// Appends two digits for each byte.
pub fn push_hex(bytes: &[u8], to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        to.push(DIGITS[usize::from(byte >> 4)]);
        to.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// The bytes of 64 digits.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_back() {
        let bytes: [u8; 32] = std::array::from_fn(|at| (at * 37) as u8);
        let mut digits = Vec::new();
        push_hex(&bytes, &mut digits);
        let digits = String::from_utf8(digits).unwrap();
        assert_eq!(unhex(&digits), Some(bytes));
        assert_eq!(unhex(&digits.to_ascii_uppercase()), Some(bytes));
        for wrong in ["", &digits[1..], &format!("{digits}0"), &digits.replace('0', "+")] {
            assert_eq!(unhex(wrong), None);
        }
    }
}
