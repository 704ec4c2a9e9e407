//! What the resolver needs of the machine's sockets beyond what tokio's types offer by themselves.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{Interest, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const BACKLOG: u32 = 4096;

/// A listener that a restarted resolver can open at once. On a machine without IPv6, "any address" means IPv4's.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.is_ipv4() {
        return open(TcpSocket::new_v4()?, address);
    }
    let socket = match TcpSocket::new_v6() {
        Ok(socket) => socket,
        Err(_) if address.ip().is_unspecified() => {
            let any = (Ipv4Addr::UNSPECIFIED, address.port());
            return open(TcpSocket::new_v4()?, any.into());
        }
        Err(error) => return Err(error),
    };
    open(socket, address)
}

fn open(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpListener> {
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Tokio offers `shutdown` only on an owned stream; the standard library's works on a borrowed descriptor.
pub(crate) fn close_writing(stream: &TcpStream) -> io::Result<()> {
    use std::os::fd::AsFd as _;
    let descriptor = stream.as_fd().try_clone_to_owned()?;
    std::net::TcpStream::from(descriptor).shutdown(std::net::Shutdown::Write)
}

/// Forgets that urgent data came, so that the next wait for it waits. It stays unread, so the kernel goes on to show it.
pub(crate) fn clear_urgent(stream: &TcpStream) {
    let unread = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
    let _ = stream.try_io(Interest::PRIORITY, unread);
}

/// Reads what is there. A read that leaves room has emptied the kernel's buffer, so the next one waits for an event
/// instead of failing with `WouldBlock`: one system call less for each request. The outer `try_io` gets a `WouldBlock`,
/// but knew the readiness from before the read: an event that came since is not lost.
pub(crate) fn read(stream: &TcpStream, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
    let room = buffer.remaining();
    let mut got = None;
    let result = stream.try_io(Interest::READABLE, || {
        let count = *got.insert(stream.try_read_buf(buffer)?);
        if 0 < count && count < room {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(())
    });
    if got.is_some() { Ok(()) } else { result }
}
