//! Bounds how many heads of HTTP/2 clients may stop between two frames: HEADERS came, and the last CONTINUATION did not.
//! Follows the frames as they are read, because h2 neither says that it waits for one nor counts what all connections wait with.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of all connections: 32 x 512 KiB = 16 MiB, as much as unfinished heads of HTTP/1 may take.
///
/// A head of one frame, as nearly all are, needs no place: until the frame is whole it takes what a frame of any kind may
/// take, 16 KiB. With 512 KiB at most: fields of 64 KiB, each counted with 32 bytes more than it has, are 1,900 in a table
/// that grows by doubling, 3,072 x 104 bytes = 312 KiB and 16 KiB of index; and up to five more frames of 16 KiB, of which
/// h2 could not decode the rest yet, in a buffer that grows by doubling, 160 KiB. One that is not stopped on purpose is
/// whole within a moment; h2 answers no ping in between, so the others end with the connection's next one.
const MOST: usize = 32;

const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;
const HEADERS: u8 = 1;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u8 = 11;

/// Those of all connections.
#[derive(Debug)]
pub(crate) struct HeaderBlocks(Arc<Semaphore>);

impl Default for HeaderBlocks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl HeaderBlocks {
    /// For one connection, of which nothing was read yet.
    pub(crate) fn connection(&self) -> Arc<ClientFrames> {
        Arc::new(ClientFrames(Mutex::new(State {
            places: self.0.clone(),
            passing: PREFACE_BYTES,
            head: [0; FRAME_HEAD_BYTES],
            head_bytes: 0,
            ends_head_of: None,
            place: None,
            last_whole: 0,
            refused: false,
        })))
    }
}

/// The frames of one connection's client.
#[derive(Debug)]
pub(crate) struct ClientFrames(Mutex<State>);

#[derive(Debug)]
struct State {
    places: Arc<Semaphore>,
    /// Bytes of the preface or of a payload that are still to come.
    passing: usize,
    /// What is there of the next frame's head.
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    /// The payload that is passing ends the head of this stream.
    ends_head_of: Option<u32>,
    /// A head goes on in another frame.
    place: Option<OwnedSemaphorePermit>,
    /// The last stream whose head is whole.
    last_whole: u32,
    refused: bool,
}

impl ClientFrames {
    /// These bytes have been read; false if they begin a head that goes on, and there is no place for it.
    pub(crate) fn read(&self, bytes: &[u8]) -> bool {
        let mut state = self.0.lock();
        let mut bytes = bytes.iter().copied();
        loop {
            let passed = state.passing.min(bytes.len());
            if let Some(last) = passed.checked_sub(1) {
                bytes.nth(last);
            }
            state.passing -= passed;
            if state.passing > 0 {
                return true;
            }
            state.payload_ended();
            let Some(next) = bytes.next() else {
                return true;
            };
            if state.head_goes_on(next) {
                state.refused = true;
                return false;
            }
        }
    }

    /// The GOAWAY of a client that was refused. The streams whose heads are whole may have been served; the refused one
    /// was not, and its client may send it again.
    pub(crate) fn goaway(&self) -> Option<Vec<u8>> {
        let state = self.0.lock();
        let frame = || {
            let mut frame = vec![0, 0, 8, GOAWAY, 0, 0, 0, 0, 0];
            frame.extend(state.last_whole.to_be_bytes());
            frame.extend([0, 0, 0, ENHANCE_YOUR_CALM]);
            frame
        };
        state.refused.then(frame)
    }
}

impl State {
    fn payload_ended(&mut self) {
        if let Some(stream) = self.ends_head_of.take() {
            self.place = None;
            self.last_whole = self.last_whole.max(stream);
        }
    }

    /// The next byte of a frame's head; true if this begins a head that goes on, and there is no place for it.
    fn head_goes_on(&mut self, byte: u8) -> bool {
        if let Some(slot) = self.head.get_mut(self.head_bytes) {
            *slot = byte;
        }
        self.head_bytes += 1;
        if self.head_bytes < FRAME_HEAD_BYTES {
            return false;
        }
        self.head_bytes = 0;
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = self.head;
        self.passing = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        match kind {
            HEADERS | CONTINUATION if flags & END_HEADERS != 0 => {
                self.ends_head_of = Some(u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]));
            }
            HEADERS if self.place.is_none() => {
                self.place = self.places.clone().try_acquire_owned().ok();
                return self.place.is_none();
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: usize) -> Vec<u8> {
        let [.., l0, l1, l2] = payload.to_be_bytes();
        let mut bytes = vec![l0, l1, l2, kind, flags, 0, 0, 0, stream];
        bytes.resize(FRAME_HEAD_BYTES + payload, b'x');
        bytes
    }

    fn free(all: &HeaderBlocks) -> usize {
        all.0.available_permits()
    }

    #[test]
    fn a_head_has_a_place_from_its_first_frame_to_the_end_of_its_last() {
        let all = HeaderBlocks::default();
        let bytes = [
            vec![b'p'; PREFACE_BYTES],
            frame(4, 0, 0, 6),
            frame(HEADERS, END_HEADERS, 1, 300),
            frame(0, END_HEADERS, 1, 70_000),
            frame(HEADERS, 0, 3, 20),
            frame(CONTINUATION, 0, 3, 0),
            frame(CONTINUATION, END_HEADERS, 3, 7),
            frame(HEADERS, 0, 5, 0),
            frame(CONTINUATION, END_HEADERS, 5, 0),
        ];
        let begins: usize = bytes[..4].iter().map(Vec::len).sum();
        let ends: usize = bytes[..7].iter().map(Vec::len).sum();
        let bytes = bytes.concat();
        for step in [1, 2, 9, 1000, bytes.len()] {
            let one = all.connection();
            let mut read = 0;
            for part in bytes.chunks(step) {
                assert!(one.read(part));
                read += part.len();
                if (begins + FRAME_HEAD_BYTES..ends).contains(&read) {
                    assert_eq!(free(&all), MOST - 1, "{read} by {step}");
                } else if read <= begins || read == ends {
                    assert_eq!(free(&all), MOST, "{read} by {step}");
                }
            }
            assert_eq!(free(&all), MOST);
        }
    }

    #[test]
    fn one_that_finds_no_place_is_refused_and_the_others_go_on() {
        let all = HeaderBlocks::default();
        let hello = vec![b'p'; PREFACE_BYTES];
        let mut open = Vec::new();
        for _ in 0..MOST {
            let one = all.connection();
            assert!(one.read(&[hello.clone(), frame(HEADERS, 0, 1, 9)].concat()));
            open.push(one);
        }
        let whole = frame(HEADERS, END_HEADERS, 1, 9);
        let refused = all.connection();
        assert!(refused.read(&[hello, whole].concat()));
        assert!(!refused.read(&frame(HEADERS, 0, 3, 9)));
        let goaway = refused.goaway().unwrap();
        assert_eq!(
            goaway[9..],
            [0, 0, 0, 1, 0, 0, 0, 11],
            "the first is served"
        );
        assert!(open[0].read(&frame(CONTINUATION, END_HEADERS, 1, 9)));
        assert!(open[0].read(&frame(HEADERS, 0, 3, 9)), "it made room");
        assert!(open[0].goaway().is_none());
        drop(open);
        assert_eq!(free(&all), MOST);
    }
}
