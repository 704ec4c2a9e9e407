//! A network inside one process and one paused runtime: delays, stalls, refusals, resets, half-closes, back-pressure.
//! The resolver uses its sockets under the feature `simulation`.
//!
//! It behaves as TCP on Linux does where the resolver can observe it: bytes stay in order and none is lost (a stalled link
//! delivers later), bytes that arrived before a reset can still be read, a socket that is closed with unread bytes or
//! gets bytes after its end answers with a reset, and a connection counts as made before it is accepted.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Bytes on their way or unread in one direction; a writer waits for room.
const WINDOW_BYTES: usize = 64 * 1024;
/// How long a message is on its way at most: a usual one, and a late one.
const USUAL_MICROS: u64 = 4000;
const LATE_MAX: Duration = Duration::from_millis(200);
/// Where [`TcpStream::connect`] connects from.
const RESOLVER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

thread_local! {
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// Randomness from a seed: splitmix64, so that a seed means the same for ever.
#[derive(Clone, Debug)]
pub struct SimRng(u64);

impl SimRng {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high.saturating_sub(low).saturating_add(1)).max(1)
    }

    /// True in this many of a hundred cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.next() % 100 < chance
    }

    /// A span from `low` to `high` milliseconds.
    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low * 1000, high * 1000))
    }

    /// Another generator, for a part of the world that must not disturb the rest.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

/// One simulated network; the current one of its thread after [`Network::enter`].
#[derive(Clone, Debug)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: SimRng,
    /// Of a hundred messages so many are late.
    late_percent: u64,
    next_port: u16,
    listeners: HashMap<SocketAddr, Arc<Queue>>,
    stalled: HashMap<IpAddr, Instant>,
    black_holes: HashSet<IpAddr>,
    refused: u64,
}

impl Network {
    /// Makes a new network the current one of this thread.
    #[must_use]
    pub fn enter(mut rng: SimRng) -> Self {
        let late_percent = if rng.percent(30) {
            rng.between(1, 10)
        } else {
            0
        };
        let network = Self(Arc::new(Mutex::new(State {
            rng,
            late_percent,
            next_port: 40_000,
            listeners: HashMap::new(),
            stalled: HashMap::new(),
            black_holes: HashSet::new(),
            refused: 0,
        })));
        NETWORK.with_borrow_mut(|current| *current = Some(network.clone()));
        network
    }

    fn current() -> io::Result<Self> {
        NETWORK
            .with_borrow(Clone::clone)
            .ok_or_else(|| io::Error::other("no simulated network on this thread"))
    }

    /// Nothing sent from now on to or from this server arrives before `until`.
    pub fn stall(&self, server: IpAddr, until: Instant) {
        self.0.lock().stalled.insert(server, until);
    }

    /// Connections to this address are neither made nor refused.
    pub fn black_hole(&self, server: IpAddr) {
        self.0.lock().black_holes.insert(server);
    }

    /// Connections that were not accepted: refused ones, and those that were neither made nor refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.0.lock().refused
    }

    /// How long a message is on its way at most, where no link is stalled.
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        if self.0.lock().late_percent > 0 {
            LATE_MAX
        } else {
            Duration::from_micros(USUAL_MICROS)
        }
    }

    /// When a message that is sent now arrives.
    fn due(&self, server: IpAddr) -> Instant {
        let mut state = self.0.lock();
        let late = state.late_percent;
        let delay = if state.rng.percent(late) {
            let latest = u64::try_from(LATE_MAX.as_millis()).unwrap_or(u64::MAX);
            state.rng.millis(5, latest)
        } else {
            Duration::from_micros(state.rng.between(50, USUAL_MICROS))
        };
        let from = state.stalled.get(&server).copied();
        Instant::now().max(from.unwrap_or_else(Instant::now)) + delay
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<VecDeque<(TcpStream, SocketAddr)>>,
    arrived: Notify,
    closed: AtomicBool,
}

/// Accepts simulated connections.
#[derive(Debug)]
pub struct TcpListener {
    address: SocketAddr,
    queue: Arc<Queue>,
    network: Network,
}

/// Opens a listener.
///
/// # Errors
/// If the address is taken, or there is no network.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let network = Network::current()?;
    let queue: Arc<Queue> = Arc::default();
    {
        let mut state = network.0.lock();
        if state.listeners.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.listeners.insert(address, queue.clone());
    }
    Ok(TcpListener {
        address,
        queue,
        network,
    })
}

impl TcpListener {
    /// The next connection.
    ///
    /// # Errors
    /// Never; the machine's listener can.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let arrived = self.queue.arrived.notified();
            let next = self.queue.waiting.lock().pop_front();
            if let Some(next) = next {
                return Ok(next);
            }
            arrived.await;
        }
    }
}

impl elasti_runtime::http_server::Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        Self::accept(self).await
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.network.0.lock().listeners.remove(&self.address);
        self.queue.closed.store(true, Ordering::Relaxed);
        // What was never accepted gets a reset, as from the kernel.
        let waiting = std::mem::take(&mut *self.queue.waiting.lock());
        for (stream, _) in waiting {
            stream.reset();
        }
    }
}

/// The addresses that a host and port name; here only addresses have names.
///
/// # Errors
/// If it is no address.
pub async fn lookup_host(host: &str) -> io::Result<std::option::IntoIter<SocketAddr>> {
    let address = host.parse().map_err(io::Error::other)?;
    Ok(Some(address).into_iter())
}

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// One end of a connection.
#[derive(Debug, Default)]
struct Side {
    /// On their way to it, with their time of arrival.
    coming: VecDeque<(Instant, Piece)>,
    inbox: VecDeque<u8>,
    /// Bytes in `coming` and `inbox`.
    unread: usize,
    /// Bytes that arrived while it was open.
    received: u64,
    ended: Option<Instant>,
    reset: bool,
    /// Its writing has ended.
    shut: bool,
    closed: bool,
    wakers: Vec<Waker>,
}

impl Side {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    fn register(&mut self, context: &Context<'_>) {
        if !self
            .wakers
            .iter()
            .any(|waker| waker.will_wake(context.waker()))
        {
            self.wakers.push(context.waker().clone());
        }
    }
}

#[derive(Debug)]
struct Wire {
    network: Network,
    server: IpAddr,
    sides: Mutex<[Side; 2]>,
}

/// Whatever `side` is, this is the other one.
fn other(side: usize) -> usize {
    1 - side
}

impl Wire {
    #[expect(clippy::indexing_slicing, reason = "a side is 0 or 1")]
    fn with<R>(&self, side: usize, act: impl FnOnce(&mut Side, &mut Side) -> R) -> R {
        let sides = &mut *self.sides.lock();
        let (first, second) = sides.split_at_mut(1);
        if side == 0 {
            act(&mut first[0], &mut second[0])
        } else {
            act(&mut second[0], &mut first[0])
        }
    }

    fn send(self: &Arc<Self>, to: usize, piece: Piece) {
        let due = self.network.due(self.server);
        let due = self.with(to, |side, _| {
            let last = side.coming.back().map_or(due, |(last, _)| *last);
            side.coming.push_back((due.max(last), piece));
            due.max(last)
        });
        // At the very end of a simulation there is no runtime left.
        if let Ok(runtime) = Handle::try_current() {
            let wire = self.clone();
            runtime.spawn(async move {
                sleep_until(due).await;
                wire.arrive(to);
            });
        }
    }

    fn arrive(self: &Arc<Self>, to: usize) {
        let now = Instant::now();
        let refused = self.with(to, |side, _| {
            let mut refused = false;
            while side.coming.front().is_some_and(|(due, _)| *due <= now) {
                match side.coming.pop_front() {
                    Some((_, Piece::Bytes(_))) if side.closed => refused = true,
                    Some((_, Piece::Bytes(bytes))) => {
                        side.received += bytes.len() as u64;
                        side.inbox.extend(bytes);
                    }
                    Some((_, Piece::End)) => {
                        side.ended.get_or_insert(now);
                    }
                    Some((_, Piece::Reset)) => {
                        side.reset = true;
                        side.ended.get_or_insert(now);
                    }
                    None => {}
                }
            }
            side.wake();
            refused
        });
        if refused {
            self.send(other(to), Piece::Reset);
        }
    }
}

/// A simulated connection.
#[derive(Debug)]
pub struct TcpStream {
    wire: Arc<Wire>,
    side: usize,
}

/// What has arrived at the other side of a connection, for ledgers.
#[derive(Clone)]
pub struct Delivery {
    wire: Arc<Wire>,
    side: usize,
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "end delivered at {:?}", self.end_delivered_at())
    }
}

impl Delivery {
    /// How many bytes reached the other side while it was open.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.wire.with(self.side, |_, peer| peer.received)
    }

    /// When the end of this side arrived at the other one.
    #[must_use]
    pub fn end_delivered_at(&self) -> Option<Instant> {
        self.wire.with(self.side, |_, peer| peer.ended)
    }
}

impl TcpStream {
    /// Connects from the resolver's address.
    ///
    /// # Errors
    /// If there is no listener.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::connect_from(RESOLVER_ADDRESS, address).await
    }

    /// Connects from a named address.
    ///
    /// # Errors
    /// If there is no listener.
    pub async fn connect_from(from: IpAddr, address: SocketAddr) -> io::Result<Self> {
        let network = Network::current()?;
        sleep_until(network.due(address.ip())).await;
        let lost = network.0.lock().black_holes.contains(&address.ip());
        if lost {
            network.0.lock().refused += 1;
            std::future::pending::<()>().await;
        }
        let queue = network.0.lock().listeners.get(&address).cloned();
        let made = queue.map(|queue| {
            let wire = Arc::new(Wire {
                network: network.clone(),
                server: address.ip(),
                sides: Mutex::default(),
            });
            let port = {
                let mut state = network.0.lock();
                state.next_port = state.next_port.checked_add(1).unwrap_or(40_000);
                state.next_port
            };
            let there = Self {
                wire: wire.clone(),
                side: 1,
            };
            let peer = SocketAddr::new(from, port);
            queue.waiting.lock().push_back((there, peer));
            queue.arrived.notify_one();
            Self { wire, side: 0 }
        });
        sleep_until(network.due(address.ip())).await;
        if made.is_none() {
            network.0.lock().refused += 1;
        }
        made.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    }

    /// What arrives at the other side.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        Delivery {
            wire: self.wire.clone(),
            side: self.side,
        }
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        self.wire.with(self.side, |mine, _| {
            mine.shut = true;
            mine.closed = true;
        });
        self.wire.send(other(self.side), Piece::Reset);
    }

    /// Has no effect: nothing waits for acknowledgements here.
    ///
    /// # Errors
    /// Never; the machine's sockets can.
    pub fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn readiness(mine: &Side, peer: &Side) -> Ready {
        let mut ready = Ready::EMPTY;
        if !mine.inbox.is_empty() || mine.ended.is_some() {
            ready |= Ready::READABLE;
        }
        if mine.ended.is_some() {
            ready |= Ready::READ_CLOSED;
        }
        if mine.reset {
            ready |= Ready::ERROR | Ready::WRITE_CLOSED;
        }
        if peer.unread < WINDOW_BYTES || mine.reset || mine.shut {
            ready |= Ready::WRITABLE;
        }
        ready
    }

    fn poll_ready(&self, context: &Context<'_>, wanted: Ready) -> Poll<Ready> {
        self.wire.with(self.side, |mine, peer| {
            let now = Self::readiness(mine, peer) & wanted;
            if now.is_empty() {
                mine.register(context);
                Poll::Pending
            } else {
                Poll::Ready(now)
            }
        })
    }

    /// Waits for one of the wanted kinds of readiness, as tokio's does.
    ///
    /// # Errors
    /// Never; the machine's sockets can.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let mut wanted = Ready::EMPTY;
        if interest.is_readable() {
            wanted |= Ready::READABLE | Ready::READ_CLOSED;
        }
        if interest.is_writable() {
            wanted |= Ready::WRITABLE | Ready::WRITE_CLOSED;
        }
        if interest.is_priority() {
            wanted |= Ready::READ_CLOSED;
        }
        if interest.is_error() {
            wanted |= Ready::ERROR;
        }
        Ok(poll_fn(|context| self.poll_ready(context, wanted)).await)
    }

    /// Whether something can be read.
    ///
    /// # Errors
    /// Never; the machine's sockets can.
    pub fn poll_read_ready(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(context, Ready::READABLE).map(|_| Ok(()))
    }

    /// Whether something can be written.
    ///
    /// # Errors
    /// Never; the machine's sockets can.
    pub fn poll_write_ready(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(context, Ready::WRITABLE).map(|_| Ok(()))
    }

    /// Reads what has arrived.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has, or the reset.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wire.with(self.side, |mine, peer| {
            let read = Self::copy(mine, buffer)?;
            mine.inbox.drain(..read);
            mine.unread = mine.unread.saturating_sub(read);
            peer.wake();
            Ok(read)
        })
    }

    fn copy(mine: &Side, buffer: &mut [u8]) -> io::Result<usize> {
        if mine.inbox.is_empty() && !buffer.is_empty() {
            return match (mine.reset, mine.ended) {
                (true, _) => Err(io::ErrorKind::ConnectionReset.into()),
                (false, Some(_)) => Ok(0),
                (false, None) => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let bytes = mine.inbox.iter().zip(buffer.iter_mut());
        Ok(bytes.map(|(from, to)| *to = *from).count())
    }

    /// Peeks at what has arrived.
    ///
    /// # Errors
    /// The reset.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read_ready(context)).await?;
        self.wire
            .with(self.side, |mine, _| Self::copy(mine, buffer))
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// `WouldBlock` without room, or the reset.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let piece = self.wire.with(self.side, |mine, peer| {
            if mine.reset || mine.shut {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe));
            }
            let room = WINDOW_BYTES.saturating_sub(peer.unread);
            let piece = bytes.get(..room.min(bytes.len())).unwrap_or_default();
            if piece.is_empty() && !bytes.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            peer.unread += piece.len();
            Ok(piece.to_vec())
        })?;
        let written = piece.len();
        self.wire.send(other(self.side), Piece::Bytes(piece));
        Ok(written)
    }

    /// Writes the first slice that holds something.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub fn try_write_vectored(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let all: Vec<u8> = slices
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        self.try_write(&all)
    }
}

/// There is no urgent data here.
pub fn clear_urgent(_: &TcpStream) {}

/// Ends the writing side.
///
/// # Errors
/// Never; the machine's sockets can.
pub fn close_writing(stream: &TcpStream) -> io::Result<()> {
    let before = stream.wire.with(stream.side, |mine, _| {
        std::mem::replace(&mut mine.shut, true)
    });
    if !before {
        stream.wire.send(other(stream.side), Piece::End);
    }
    Ok(())
}

/// Reads what has arrived.
///
/// # Errors
/// `WouldBlock` if nothing has, or the reset.
pub fn read(stream: &TcpStream, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
    let count = stream.try_read(buffer.initialize_unfilled())?;
    buffer.advance(count);
    Ok(())
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let last = self.wire.with(self.side, |mine, _| {
            if std::mem::replace(&mut mine.closed, true) || mine.reset {
                return None;
            }
            let unread = !mine.inbox.is_empty();
            let ended = std::mem::replace(&mut mine.shut, true);
            match (unread, ended) {
                (true, _) => Some(Piece::Reset),
                (false, true) => None,
                (false, false) => Some(Piece::End),
            }
        });
        if let Some(piece) = last {
            self.wire.send(other(self.side), piece);
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.poll_read_ready(context).is_pending() {
            return Poll::Pending;
        }
        let read = self.try_read(buffer.initialize_unfilled())?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.poll_write_ready(context).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(self.try_write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(close_writing(&self))
    }
}
