//! Hostile, odd and oversized HTTP/2 connections, frame by frame.
//! `expected.txt` has the outcomes.

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// The kind and the payload of the next frame; `None` if the connection has ended.
pub async fn next_frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.ok()?;
    Some((head[3], payload))
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A literal without a place in the table; lengths below 127 take one byte, others three.
fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        if text.len() < 127 {
            bytes.push(u8::try_from(text.len()).unwrap());
        } else {
            let mut rest = text.len() - 127;
            bytes.push(127);
            while rest >= 128 {
                bytes.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap());
        }
        bytes.extend(text);
    }
    bytes
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    fields
        .iter()
        .flat_map(|(name, value)| literal(name.as_bytes(), value.as_bytes()))
        .collect()
}

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/c"),
    (":authority", "h"),
];
const POST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/c"),
    (":authority", "h"),
];

/// A request without body.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    let fields = block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "h"),
    ]);
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields)
}

fn with(base: &[(&str, &str)], more: &[(&str, &str)]) -> Vec<u8> {
    frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &block(&[base, more].concat()),
    )
}

fn fields(all: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(all))
}

/// A request with these headers and this body.
fn post(more: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, 1, &block(&[&POST, more].concat()));
    [head, frame(DATA, END_STREAM, 1, body)].concat()
}

/// Name and what follows the preface and our settings.
pub fn cases() -> Vec<(String, Vec<u8>)> {
    let mut all = heads();
    all.extend(frames());
    all.extend(floods());
    all.into_iter()
        .map(|(name, bytes)| (format!("h2: {name}"), bytes))
        .collect()
}

#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn heads() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("an honest request", fields(&GET)),
        ("no method", fields(&GET[1..])),
        ("no scheme", fields(&[GET[0], GET[2], GET[3]])),
        ("no path", fields(&[GET[0], GET[1], GET[3]])),
        ("no authority", fields(&GET[..3])),
        (
            "an empty path",
            fields(&[GET[0], GET[1], (":path", ""), GET[3]]),
        ),
        (
            "a path without slash",
            fields(&[GET[0], GET[1], (":path", "c"), GET[3]]),
        ),
        (
            "a path with a space",
            fields(&[GET[0], GET[1], (":path", "/c HTTP/1.1\r\nX: y"), GET[3]]),
        ),
        (
            "an asterisk path of a GET",
            fields(&[GET[0], GET[1], (":path", "*"), GET[3]]),
        ),
        ("two methods", with(&GET, &[(":method", "POST")])),
        ("two paths", with(&GET, &[(":path", "/d")])),
        (
            "a method with a line end",
            fields(&[(":method", "GET\r\nX: y"), GET[1], GET[2], GET[3]]),
        ),
        (
            "a method with a space",
            fields(&[(":method", "GET /d"), GET[1], GET[2], GET[3]]),
        ),
        (
            "an authority with a user",
            fields(&[GET[0], GET[1], GET[2], (":authority", "user@h")]),
        ),
        (
            "an authority with a path",
            fields(&[GET[0], GET[1], GET[2], (":authority", "h/d")]),
        ),
        (
            "an authority with a line end",
            fields(&[GET[0], GET[1], GET[2], (":authority", "h\r\nX: y")]),
        ),
        (
            "a pseudo-header behind a header",
            fields(&[GET[0], GET[1], ("a", "b"), GET[2], GET[3]]),
        ),
        ("an unknown pseudo-header", with(&GET, &[(":pony", "1")])),
        (":status in a request", with(&GET, &[(":status", "200")])),
        ("an upper-case name", with(&GET, &[("Accept", "a")])),
        ("connection", with(&GET, &[("connection", "close")])),
        (
            "transfer-encoding",
            with(&GET, &[("transfer-encoding", "chunked")]),
        ),
        ("keep-alive", with(&GET, &[("keep-alive", "5")])),
        ("upgrade", with(&GET, &[("upgrade", "websocket")])),
        ("te gzip", with(&GET, &[("te", "gzip")])),
        ("te trailers", with(&GET, &[("te", "trailers")])),
        ("a value with a line end", with(&GET, &[("a", "b\r\nx: y")])),
        ("a value with NUL", with(&GET, &[("a", "b\0c")])),
        ("a name with a space", with(&GET, &[("a b", "c")])),
        ("a name with a colon", with(&GET, &[("a:b", "c")])),
        ("a name with a line end", with(&GET, &[("a\r\nb", "c")])),
        ("an empty name", with(&GET, &[("", "c")])),
        (
            "a host that differs from the authority",
            with(&GET, &[("host", "other")]),
        ),
        (
            "a length without a body",
            with(&POST, &[("content-length", "3")]),
        ),
        (
            "a length of its body",
            post(&[("content-length", "3")], b"abc"),
        ),
        (
            "a length beyond its body",
            post(&[("content-length", "10")], b"abc"),
        ),
        (
            "a length short of its body",
            post(&[("content-length", "1")], b"abc"),
        ),
        (
            "two lengths",
            post(&[("content-length", "3"), ("content-length", "4")], b"abc"),
        ),
        (
            "a length that is no number",
            post(&[("content-length", "3x")], b"abc"),
        ),
        (
            "CONNECT",
            fields(&[(":method", "CONNECT"), (":authority", "h:80")]),
        ),
        (
            "extended CONNECT",
            fields(&[
                (":method", "CONNECT"),
                (":protocol", "websocket"),
                GET[1],
                GET[2],
                GET[3],
            ]),
        ),
        (
            "trailers with a pseudo-header",
            [
                frame(HEADERS, END_HEADERS, 1, &block(&POST)),
                frame(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    1,
                    &block(&[(":path", "/d")]),
                ),
            ]
            .concat(),
        ),
        (
            "trailers with a length",
            [
                frame(HEADERS, END_HEADERS, 1, &block(&POST)),
                frame(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    1,
                    &block(&[("content-length", "5")]),
                ),
            ]
            .concat(),
        ),
        (
            "trailers without the end",
            [
                frame(HEADERS, END_HEADERS, 1, &block(&POST)),
                frame(HEADERS, END_HEADERS, 1, &block(&[("a", "b")])),
            ]
            .concat(),
        ),
        ("a header list of 100 KiB", {
            let big = literal(b"a", "x".repeat(10_000).as_bytes());
            let start = frame(HEADERS, END_STREAM, 1, &block(&GET));
            let rest = (0..10)
                .map(|at| frame(CONTINUATION, if at == 9 { END_HEADERS } else { 0 }, 1, &big));
            [start, rest.collect::<Vec<_>>().concat()].concat()
        }),
        ("200 headers", with(&GET, &vec![("a", "b"); 200])),
    ]
}

#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("DATA on stream 0", frame(DATA, 0, 0, b"abc")),
        ("DATA on an idle stream", frame(DATA, END_STREAM, 1, b"abc")),
        (
            "HEADERS on stream 0",
            frame(HEADERS, END_HEADERS, 0, &block(&GET)),
        ),
        (
            "HEADERS on an even stream",
            frame(HEADERS, END_HEADERS | END_STREAM, 2, &block(&GET)),
        ),
        (
            "a stream number that goes back",
            [get(5, "/c"), get(3, "/d")].concat(),
        ),
        (
            "HEADERS again after the end",
            [get(1, "/c"), get(1, "/d")].concat(),
        ),
        (
            "DATA after the end",
            [get(1, "/c"), frame(DATA, 0, 1, b"abc")].concat(),
        ),
        (
            "another frame between HEADERS and CONTINUATION",
            [
                frame(HEADERS, END_STREAM, 1, &block(&GET)),
                frame(PING, 0, 0, &[0; 8]),
            ]
            .concat(),
        ),
        (
            "CONTINUATION without HEADERS",
            frame(CONTINUATION, END_HEADERS, 1, &block(&GET)),
        ),
        (
            "PUSH_PROMISE from a client",
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        ),
        ("a PING of 7 bytes", frame(PING, 0, 0, &[0; 7])),
        ("SETTINGS of 5 bytes", frame(SETTINGS, 0, 0, &[0; 5])),
        ("SETTINGS on a stream", frame(SETTINGS, 0, 1, &[])),
        (
            "an acknowledgement with content",
            frame(SETTINGS, 1, 0, &[0, 3, 0, 0, 0, 1]),
        ),
        (
            "a window of 2^31",
            frame(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]),
        ),
        (
            "a frame size of 1",
            frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]),
        ),
        ("an update of 0", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        (
            "an update beyond 2^31",
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        ),
        (
            "a frame larger than allowed",
            frame(DATA, 0, 1, &vec![0; 20_000]),
        ),
        (
            "padding longer than its frame",
            frame(DATA, 8, 1, &[200, 1, 2]),
        ),
        (
            "a stream that depends on itself",
            frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 5]),
        ),
        (
            "an unknown frame",
            [frame(0x77, 0xff, 0, b"abc"), get(1, "/c")].concat(),
        ),
        (
            "RST_STREAM of an idle stream",
            frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
        ),
        (
            "GOAWAY, then a request",
            [frame(GOAWAY, 0, 0, &[0; 8]), get(1, "/c")].concat(),
        ),
        (
            "an index that is not in the table",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff, 0xff, 0x03]),
        ),
        (
            "a table size beyond what was agreed",
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &[0x3f, 0xff, 0xff, 0xff, 0x07],
            ),
        ),
        (
            "a literal that never ends",
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &[0, 0x7f, 0xff, 0xff, 0xff, 0xff],
            ),
        ),
        (
            "bad Huffman code",
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &[0, 0x84, 0xff, 0xff, 0xff, 0xff, 0x01, b'a'],
            ),
        ),
        (
            "a window of zero, then a request",
            [frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]), get(1, "/c")].concat(),
        ),
    ]
}

fn floods() -> Vec<(&'static str, Vec<u8>)> {
    let resets = |stream: u32| {
        [
            get(stream, "/reset"),
            frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
        ]
        .concat()
    };
    let indexed = (0..4000).map(|_| 0x82_u8).collect::<Vec<_>>();
    vec![
        (
            "flood of 1000 requests that are reset at once",
            (0..1000).flat_map(|at| resets(2 * at + 1)).collect(),
        ),
        (
            "flood of 500 requests at once",
            (0..500).flat_map(|at| get(2 * at + 1, "/many")).collect(),
        ),
        (
            "flood of 10,000 CONTINUATIONs of nothing",
            [
                frame(HEADERS, END_STREAM, 1, &block(&GET)),
                frame(CONTINUATION, 0, 1, &[]).repeat(10_000),
            ]
            .concat(),
        ),
        (
            "flood of 5000 CONTINUATIONs of a byte pair",
            [
                frame(HEADERS, END_STREAM, 1, &block(&GET)),
                frame(CONTINUATION, 0, 1, &literal(b"a", b"b")).repeat(5000),
            ]
            .concat(),
        ),
        (
            "flood of 10,000 PINGs",
            frame(PING, 0, 0, &[0; 8]).repeat(10_000),
        ),
        (
            "flood of 10,000 SETTINGS",
            frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]).repeat(10_000),
        ),
        (
            "flood of 10,000 empty DATA frames",
            [
                frame(HEADERS, END_HEADERS, 1, &block(&POST)),
                frame(DATA, 0, 1, &[]).repeat(10_000),
                frame(DATA, END_STREAM, 1, &[]),
            ]
            .concat(),
        ),
        (
            "flood of 10,000 PRIORITY frames",
            frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 5]).repeat(10_000),
        ),
        (
            "4000 methods from the table",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &indexed),
        ),
        (
            "an unfinished head",
            frame(HEADERS, END_STREAM, 1, &block(&GET)),
        ),
        (
            "an unfinished body",
            frame(HEADERS, END_HEADERS, 1, &block(&POST)),
        ),
    ]
}
