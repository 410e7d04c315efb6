//! The binary protocol, which is refused.

/// The first byte of its requests, which begins no command of the text protocol, and of its replies.
pub(crate) const REQUEST: u8 = 0x80;
const REPLY: u8 = 0x81;
/// Its status for a command that a server does not know.
const UNKNOWN_COMMAND: u16 = 0x81;
const TEXT: &[u8] = b"the binary protocol is not supported: set the client to the text protocol";
/// What a log says of such a client.
pub const BINARY_CLIENT: &str = "refused a client of memcached's binary protocol; set it to the text protocol (its name there is often ASCII)";
/// The binary protocol's own refusal of the request that `buffer` begins with; `None` if it is of the text protocol. Clients show
/// its text; where a connection ends without a word, they take the server for one that is down. The connection has to
/// end after it, since bodies are not told from requests.
///
/// ```
/// let mut request = [0; 24];
/// (request[0], request[1], request[15]) = (0x80, 0x0b, 7);
/// let reply = memcached::refuse_binary(&request).unwrap();
/// assert_eq!((reply[0], reply[1], reply[15]), (0x81, 0x0b, 7));
/// assert!(reply.ends_with(b"text protocol") && memcached::refuse_binary(b"get a\r\n").is_none());
/// ```
pub fn refuse_binary(buffer: &[u8]) -> Option<Vec<u8>> {
    if buffer.first() != Some(&REQUEST) {
        return None;
    }
    // Opcode and opaque are those of the request, as far as it is here.
    let opcode = buffer.get(1).copied().unwrap_or(0);
    let opaque = buffer.get(12..16).unwrap_or(&[0; 4]);
    let length = u32::try_from(TEXT.len()).unwrap_or(u32::MAX);
    let mut reply = vec![REPLY, opcode, 0, 0, 0, 0];
    reply.extend_from_slice(&UNKNOWN_COMMAND.to_be_bytes());
    reply.extend_from_slice(&length.to_be_bytes());
    reply.extend_from_slice(opaque);
    // No version of an item.
    reply.extend_from_slice(&[0; 8]);
    reply.extend_from_slice(TEXT);
    Some(reply)
}
