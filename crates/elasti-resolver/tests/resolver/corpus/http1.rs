//! Hostile, odd and oversized HTTP/1 messages, one line each where they fit.
//! `expected.txt` has the outcomes.

/// Name and bytes. `~` in a name's bytes is nothing special; long ones are made here.
#[allow(clippy::too_many_lines, reason = "a table of cases")]
pub fn cases() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = TABLE
        .iter()
        .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
        .collect();
    let head = "GET /c HTTP/1.1\r\nHost: h\r\n";
    let post = "POST /c HTTP/1.1\r\nHost: h\r\n";
    let mut add = |name: &str, text: Vec<u8>| all.push((name.to_owned(), text));
    add(
        "limit: a target of 70 KiB",
        format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(70_000)).into_bytes(),
    );
    add(
        "limit: a target of 8 KiB",
        format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(8000)).into_bytes(),
    );
    add(
        "limit: a header of 70 KiB",
        format!("{head}A: {}\r\n\r\n", "a".repeat(70_000)).into_bytes(),
    );
    add(
        "limit: a header name of 70 KiB",
        format!("{head}{}: a\r\n\r\n", "a".repeat(70_000)).into_bytes(),
    );
    let many = |count: usize| {
        (0..count)
            .map(|at| format!("h{at}: x\r\n"))
            .collect::<String>()
    };
    add(
        "limit: 99 headers",
        format!("{head}{}\r\n", many(98)).into_bytes(),
    );
    add(
        "limit: 101 headers",
        format!("{head}{}\r\n", many(100)).into_bytes(),
    );
    add(
        "limit: 5000 headers",
        format!("{head}{}\r\n", many(5000)).into_bytes(),
    );
    add(
        "limit: a method of 1000 letters",
        format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", "A".repeat(1000)).into_bytes(),
    );
    add(
        "chunk: an extension of 20 KiB",
        format!(
            "{post}Transfer-Encoding: chunked\r\n\r\n3;{}\r\nabc\r\n0\r\n\r\n",
            "x".repeat(20_000)
        )
        .into_bytes(),
    );
    add(
        "chunk: 2000 chunks with extensions of 20 bytes",
        format!(
            "{post}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
            format!("1;{}\r\na\r\n", "x".repeat(20)).repeat(2000)
        )
        .into_bytes(),
    );
    add(
        "trailer: 70 KiB",
        format!(
            "{post}Transfer-Encoding: chunked\r\n\r\n0\r\nA: {}\r\n\r\n",
            "a".repeat(70_000)
        )
        .into_bytes(),
    );
    add(
        "trailer: 2000 fields",
        format!(
            "{post}Transfer-Encoding: chunked\r\n\r\n0\r\n{}\r\n",
            many(2000)
        )
        .into_bytes(),
    );
    add(
        "chunk: a size of 100 zeros and 3",
        format!(
            "{post}Transfer-Encoding: chunked\r\n\r\n{}3\r\nabc\r\n0\r\n\r\n",
            "0".repeat(100)
        )
        .into_bytes(),
    );
    let mut high = b"GET /\xff\xfe HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
    add("target: bytes above 127", std::mem::take(&mut high));
    add(
        "header: bytes above 127 in a value",
        b"GET /c HTTP/1.1\r\nHost: h\r\nA: \xff\r\n\r\n".to_vec(),
    );
    add(
        "header: bytes above 127 in a name",
        b"GET /c HTTP/1.1\r\nHost: h\r\nA\xff: a\r\n\r\n".to_vec(),
    );
    add(
        "pipeline: 50 requests at once",
        "GET /c HTTP/1.1\r\nHost: h\r\n\r\n".repeat(50).into_bytes(),
    );
    all
}

const TABLE: &[(&str, &str)] = &[
    // Both ways of framing.
    (
        "cl+te: length first",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
    ),
    (
        "cl+te: chunked first",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    ),
    (
        "cl+te: a hidden request",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "cl+te: length zero",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "cl+te: other letters",
        "POST /c HTTP/1.1\r\nHost: h\r\ncOnTeNt-LeNgTh: 4\r\ntRaNsFeR-eNcOdInG: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "cl+te: identity",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: identity\r\n\r\nabc",
    ),
    (
        "cl+te: on a GET",
        "GET /c HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    // Lengths.
    (
        "cl: twice, different",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    ),
    (
        "cl: twice, equal",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    ),
    (
        "cl: a list, different",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 4\r\n\r\nabcd",
    ),
    (
        "cl: a list, equal",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\nabc",
    ),
    (
        "cl: plus",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc",
    ),
    (
        "cl: minus",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: -3\r\n\r\nabc",
    ),
    (
        "cl: hexadecimal",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 0x3\r\n\r\nabc",
    ),
    (
        "cl: a space inside",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3 3\r\n\r\nabc",
    ),
    (
        "cl: letters behind",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3a\r\n\r\nabc",
    ),
    (
        "cl: a fraction",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3.0\r\n\r\nabc",
    ),
    (
        "cl: empty",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: \r\n\r\nabc",
    ),
    (
        "cl: leading zeros",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 0003\r\n\r\nabc",
    ),
    (
        "cl: spaces around",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length:   3  \r\n\r\nabc",
    ),
    (
        "cl: tabs around",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length:\t3\t\r\n\r\nabc",
    ),
    (
        "cl: 2^64",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551616\r\n\r\nabc",
    ),
    (
        "cl: 2^64 - 1",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\nabc",
    ),
    (
        "cl: 40 digits",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000000000000000000000000000000003\r\n\r\nabc",
    ),
    (
        "cl: a vertical tab before",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: \x0b3\r\n\r\nabc",
    ),
    (
        "cl: underscore name",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent_Length: 3\r\n\r\n",
    ),
    (
        "body: longer than its length",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /second HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "body: longer, and no message",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcdefg\r\n\r\n",
    ),
    (
        "body: shorter than its length",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc",
    ),
    (
        "body: of a GET",
        "GET /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
    ),
    (
        "body: of a HEAD",
        "HEAD /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
    ),
    (
        "body: of a DELETE without length",
        "DELETE /c HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    // Transfer codings.
    (
        "te: xchunked",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: chunked, identity",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: identity, chunked",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: gzip, chunked",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: chunked, chunked",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: twice",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: chunked then identity",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: identity then chunked",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: upper case",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "te: a tab before",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\tchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "te: a tab behind",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\t\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "te: a vertical tab before",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: quotes",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: a parameter",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: a comma behind",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked,\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: a comma before",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: empty",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \r\n\r\nabc",
    ),
    (
        "te: a space before the colon",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: folded",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: a bare CR before",
        "POST /c HTTP/1.1\r\nHost: h\r\nA: b\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "te: with HTTP/1.0",
        "POST /c HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "te: with HTTP/1.0 and a length",
        "POST /c HTTP/1.0\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    ),
    (
        "te: on a GET",
        "GET /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    // Chunks.
    (
        "chunk: plain",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: minus",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: plus",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: 0x3",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: 2^64 + 3",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000003\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: 2^64 - 1",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: no number",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: empty size",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: a space before the size",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: a space behind the size",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: leading zeros",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0003\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: an extension",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: an extension with a bare LF",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;a\nb\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: an extension with a bare CR",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;a\rb\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: a bare LF behind the size",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: a bare LF behind the data",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n",
    ),
    (
        "chunk: no line end behind the data",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc0\r\n\r\n",
    ),
    (
        "chunk: more data than said",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
    ),
    (
        "chunk: less data than said",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "chunk: no last one",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ),
    (
        "chunk: a last one of 00",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n00\r\n\r\n",
    ),
    (
        "chunk: bytes behind the last",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
    ),
    // Trailers.
    (
        "trailer: plain",
        "POST /c HTTP/1.1\r\nHost: h\r\nTrailer: A\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
    ),
    (
        "trailer: a length",
        "POST /c HTTP/1.1\r\nHost: h\r\nTrailer: content-length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 9\r\n\r\n",
    ),
    (
        "trailer: a coding and a host",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTransfer-Encoding: chunked\r\nHost: x\r\n\r\n",
    ),
    (
        "trailer: no colon",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nabc\r\n\r\n",
    ),
    (
        "trailer: a request line",
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    // Lines.
    ("line: bare LF everywhere", "GET /c HTTP/1.1\nHost: h\n\n"),
    (
        "line: bare LF behind one header",
        "GET /c HTTP/1.1\r\nHost: h\r\nA: b\nB: c\r\n\r\n",
    ),
    (
        "line: bare CR in a value",
        "GET /c HTTP/1.1\r\nHost: h\r\nA: b\rB: c\r\n\r\n",
    ),
    ("line: CR CR LF", "GET /c HTTP/1.1\r\nHost: h\r\r\n\r\n"),
    (
        "line: NUL in a value",
        "GET /c HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n",
    ),
    (
        "line: NUL in a name",
        "GET /c HTTP/1.1\r\nHost: h\r\nA\0: b\r\n\r\n",
    ),
    (
        "line: obs-fold with a space",
        "GET /c HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
    ),
    (
        "line: obs-fold with a tab",
        "GET /c HTTP/1.1\r\nHost: h\r\nA: b\r\n\tc\r\n\r\n",
    ),
    (
        "line: a fold as the first header",
        "GET /c HTTP/1.1\r\n Host: h\r\nHost: h\r\n\r\n",
    ),
    (
        "line: a space before a colon",
        "GET /c HTTP/1.1\r\nHost : h\r\n\r\n",
    ),
    (
        "line: a tab before a colon",
        "GET /c HTTP/1.1\r\nHost: h\r\nA\t: b\r\n\r\n",
    ),
    (
        "line: no colon",
        "GET /c HTTP/1.1\r\nHost: h\r\nabc\r\n\r\n",
    ),
    (
        "line: an empty name",
        "GET /c HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n",
    ),
    (
        "line: a name with a slash",
        "GET /c HTTP/1.1\r\nHost: h\r\nA/b: c\r\n\r\n",
    ),
    (
        "line: a name in brackets",
        "GET /c HTTP/1.1\r\nHost: h\r\n[a]: c\r\n\r\n",
    ),
    (
        "line: a name with a space",
        "GET /c HTTP/1.1\r\nHost: h\r\nA b: c\r\n\r\n",
    ),
    (
        "line: empty lines first",
        "\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    ("line: a space first", " GET /c HTTP/1.1\r\nHost: h\r\n\r\n"),
    // Request lines.
    ("start: HTTP/0.9", "GET /c\r\n\r\n"),
    ("start: HTTP/1.0", "GET /c HTTP/1.0\r\nHost: h\r\n\r\n"),
    ("start: HTTP/1.2", "GET /c HTTP/1.2\r\nHost: h\r\n\r\n"),
    ("start: HTTP/2.0", "GET /c HTTP/2.0\r\nHost: h\r\n\r\n"),
    ("start: HTTP/01.1", "GET /c HTTP/01.1\r\nHost: h\r\n\r\n"),
    ("start: http/1.1", "GET /c http/1.1\r\nHost: h\r\n\r\n"),
    (
        "start: no version's number",
        "GET /c HTTP/\r\nHost: h\r\n\r\n",
    ),
    ("start: two spaces", "GET  /c HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("start: a tab", "GET\t/c\tHTTP/1.1\r\nHost: h\r\n\r\n"),
    (
        "start: a space in the target",
        "GET /c d HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "start: a space behind",
        "GET /c HTTP/1.1 \r\nHost: h\r\n\r\n",
    ),
    ("start: lower case", "get /c HTTP/1.1\r\nHost: h\r\n\r\n"),
    (
        "start: an unknown method",
        "BREW /c HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "start: a method with brackets",
        "G(E)T /c HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "start: absolute form",
        "GET http://h/c HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "start: absolute form of another host",
        "GET http://other/c HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "start: absolute form of https",
        "GET https://h/c HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "start: authority form",
        "GET h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    ("start: asterisk", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"),
    (
        "start: asterisk of a GET",
        "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "start: CONNECT",
        "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
    ),
    (
        "start: CONNECT with a path",
        "CONNECT /c HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    ("start: TRACE", "TRACE /c HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("start: a fragment", "GET /c#d HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("start: dots", "GET /../../c HTTP/1.1\r\nHost: h\r\n\r\n"),
    (
        "start: encoded line ends",
        "GET /c%0d%0aX:%20y HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "start: DEL in the target",
        "GET /c\x7f HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    // Hosts.
    ("host: none", "GET /c HTTP/1.1\r\n\r\n"),
    (
        "host: two",
        "GET /c HTTP/1.1\r\nHost: h\r\nHost: other\r\n\r\n",
    ),
    (
        "host: two, equal",
        "GET /c HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
    ),
    ("host: a list", "GET /c HTTP/1.1\r\nHost: h, other\r\n\r\n"),
    ("host: a user", "GET /c HTTP/1.1\r\nHost: user@h\r\n\r\n"),
    ("host: a path", "GET /c HTTP/1.1\r\nHost: h/d\r\n\r\n"),
    ("host: empty", "GET /c HTTP/1.1\r\nHost:\r\n\r\n"),
    (
        "host: a port of letters",
        "GET /c HTTP/1.1\r\nHost: h:abc\r\n\r\n",
    ),
    // Fields of one hop.
    (
        "hop: Connection names the length",
        "POST /c HTTP/1.1\r\nHost: h\r\nConnection: content-length\r\nContent-Length: 3\r\n\r\nabc",
    ),
    (
        "hop: Connection names the coding",
        "POST /c HTTP/1.1\r\nHost: h\r\nConnection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "hop: Connection names the host",
        "GET /c HTTP/1.1\r\nHost: h\r\nConnection: host\r\n\r\n",
    ),
    (
        "hop: Connection names forwarding fields",
        "GET /c HTTP/1.1\r\nHost: h\r\nConnection: x-forwarded-for, authorization\r\nAuthorization: a\r\n\r\n",
    ),
    (
        "hop: Connection with nonsense",
        "GET /c HTTP/1.1\r\nHost: h\r\nConnection: ,,;\"x\"\r\n\r\n",
    ),
    (
        "hop: Keep-Alive and Proxy-Connection",
        "GET /c HTTP/1.1\r\nHost: h\r\nKeep-Alive: 5\r\nProxy-Connection: close\r\n\r\n",
    ),
    (
        "hop: TE gzip",
        "GET /c HTTP/1.1\r\nHost: h\r\nConnection: te\r\nTE: gzip\r\n\r\n",
    ),
    (
        "hop: Upgrade without Connection",
        "GET /c HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n",
    ),
    (
        "hop: Upgrade h2c",
        "GET /c HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    ),
    // Expectations.
    (
        "expect: 100-continue with its body at once",
        "POST /c HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    ),
    (
        "expect: 100-continue twice",
        "POST /c HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    ),
    (
        "expect: something else",
        "POST /c HTTP/1.1\r\nHost: h\r\nExpect: a-pony\r\nContent-Length: 3\r\n\r\nabc",
    ),
    (
        "expect: 100-continue without a body",
        "GET /c HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n",
    ),
    (
        "expect: of HTTP/1.0",
        "POST /c HTTP/1.0\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    ),
    // Pipelines.
    (
        "pipeline: two",
        "GET /c HTTP/1.1\r\nHost: h\r\n\r\nGET /d HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "pipeline: a body between",
        "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcPOST /d HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nde",
    ),
    (
        "pipeline: the first closes",
        "GET /c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /d HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "pipeline: the second is hostile",
        "GET /c HTTP/1.1\r\nHost: h\r\n\r\nGET /d HTTP/1.1\r\nHost : h\r\n\r\n",
    ),
    (
        "pipeline: empty lines between",
        "GET /c HTTP/1.1\r\nHost: h\r\n\r\n\r\n\r\nGET /d HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
];
