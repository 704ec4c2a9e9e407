//! Where an HTTP probe that is redirected goes on, as for a kubelet: on the same host only, and not for ever.

use std::net::IpAddr;

/// Requests of one probe; what is redirected once more fails.
pub const MOST_REQUESTS: usize = 10;

/// What one request of an HTTP probe asks for. The host is the pod's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpTarget {
    /// Scheme HTTPS.
    pub tls: bool,
    /// The port of the pod.
    pub port: u16,
    /// Path and query; begins with a slash.
    pub path: String,
}

/// What an answer means for its probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is over.
    Passes(bool),
    /// The answer to this one counts instead.
    Follow {
        /// What is asked next.
        target: HttpTarget,
        /// A `Host` header of the probe's own is sent again.
        keeps_host: bool,
    },
}

impl HttpTarget {
    /// What the answer to this request means. Any 2xx or 3xx passes, but a redirect on the same host is followed. One to
    /// another host passes: a kubelet only warns.
    #[must_use]
    pub fn judge(&self, pod: IpAddr, status: u16, location: Option<&str>) -> Verdict {
        let location = location.filter(|location| !location.is_empty());
        match (status, location) {
            (301 | 302 | 303 | 307 | 308, Some(location)) => self.redirected(pod, location),
            _ => Verdict::Passes((200..400).contains(&status)),
        }
    }

    fn redirected(&self, pod: IpAddr, location: &str) -> Verdict {
        let location = location
            .split_once('#')
            .map_or(location, |(before, _)| before);
        let (scheme, rest) = split_scheme(location);
        let Some(after) = rest.strip_prefix("//") else {
            return match scheme {
                Some(_) => Verdict::Passes(true),
                None => self.follow(self.tls, self.port, &self.resolve(rest), true),
            };
        };
        let end = after.find(['/', '?']).unwrap_or(after.len());
        let (authority, path) = after.split_at_checked(end).unwrap_or((after, ""));
        let Some((host, port)) = split_authority(authority) else {
            return Verdict::Passes(false);
        };
        let same = |host: IpAddr| host.to_canonical() == pod.to_canonical();
        if !host.parse().is_ok_and(same) {
            return Verdict::Passes(true);
        }
        let tls = match scheme.map(str::to_ascii_lowercase).as_deref() {
            None => self.tls,
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Verdict::Passes(false),
        };
        let port = port.unwrap_or(if tls { 443 } else { 80 });
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("/{path}"),
        };
        self.follow(tls, port, &path, scheme.is_none())
    }

    fn follow(&self, tls: bool, port: u16, path: &str, keeps_host: bool) -> Verdict {
        Verdict::Follow {
            target: Self {
                tls,
                port,
                path: without_dots(path),
            },
            keeps_host,
        }
    }

    /// A reference without scheme and host, seen from here.
    fn resolve(&self, reference: &str) -> String {
        let path = self
            .path
            .split_once('?')
            .map_or(&*self.path, |(path, _)| path);
        match reference.chars().next() {
            None => self.path.clone(),
            Some('/') => reference.to_owned(),
            Some('?') => format!("{path}{reference}"),
            Some(_) => {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{reference}")
            }
        }
    }
}

/// The scheme, if there is one, and what follows its colon.
fn split_scheme(location: &str) -> (Option<&str>, &str) {
    match location.split_once(':') {
        Some((scheme, rest)) if !scheme.is_empty() && !scheme.contains(['/', '?']) => {
            (Some(scheme), rest)
        }
        _ => (None, location),
    }
}

/// Host and port; `None` where the port is none.
fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => {
            let end = authority.find(':').unwrap_or(authority.len());
            authority.split_at_checked(end)?
        }
    };
    match port.strip_prefix(':').unwrap_or(port) {
        "" => Some((host, None)),
        port => {
            let port = port.parse().ok().filter(|port| *port > 0)?;
            Some((host, Some(port)))
        }
    }
}

/// The path without its segments `.` and `..`; the query stays as it is.
fn without_dots(path: &str) -> String {
    let (path, query) = match path.find('?') {
        Some(at) => path.split_at_checked(at).unwrap_or((path, "")),
        None => (path, ""),
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => {
                kept.push(segment);
                continue;
            }
        }
        if last {
            kept.push("");
        }
    }
    format!("/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn asked() -> HttpTarget {
        HttpTarget {
            tls: false,
            port: 8080,
            path: "/app/health?full=1".into(),
        }
    }

    fn to(location: &str) -> Verdict {
        asked().judge(POD, 302, Some(location))
    }

    #[test]
    fn a_redirect_on_the_same_host_is_followed() {
        for (location, tls, port, path, keeps_host) in [
            ("/ready", false, 8080, "/ready", true),
            ("ready?a=/../b", false, 8080, "/app/ready?a=/../b", true),
            ("../ready/./x/..", false, 8080, "/ready/", true),
            ("/../../ready", false, 8080, "/ready", true),
            ("?full=0", false, 8080, "/app/health?full=0", true),
            ("#part", false, 8080, "/app/health?full=1", true),
            ("//10.0.0.1/ready", false, 80, "/ready", true),
            ("http://10.0.0.1:9000/ready#x", false, 9000, "/ready", false),
            ("https://user@10.0.0.1", true, 443, "/", false),
            ("HTTPS://10.0.0.1:8443?a=1", true, 8443, "/?a=1", false),
        ] {
            let target = HttpTarget {
                tls,
                port,
                path: path.into(),
            };
            let expected = Verdict::Follow { target, keeps_host };
            assert_eq!(to(location), expected, "{location}");
        }
        let v6: IpAddr = "fd00::1".parse().unwrap();
        let verdict = asked().judge(v6, 307, Some("http://[fd00::1]:81/x"));
        assert!(matches!(verdict, Verdict::Follow { target, .. } if target.port == 81));
    }

    #[test]
    fn a_redirect_to_another_host_passes() {
        for location in [
            "http://login.example/",
            "https://10.0.0.2:8080/ready",
            "//login.example",
            "http://10.0.0.1.example/",
            "http://10.0.0.1@login.example/",
            "mailto:someone",
        ] {
            assert_eq!(to(location), Verdict::Passes(true), "{location}");
        }
    }

    #[test]
    fn what_cannot_be_followed_on_the_same_host_fails() {
        for location in [
            "http://10.0.0.1:x/",
            "http://10.0.0.1:0/",
            "http://10.0.0.1:99999/",
            "http://[fd00::1/",
            "ftp://10.0.0.1/",
        ] {
            assert_eq!(to(location), Verdict::Passes(false), "{location}");
        }
    }

    #[test]
    fn every_other_answer_counts_by_its_status() {
        for (status, location, passes) in [
            (200, None, true),
            (204, Some("/x"), true),
            (302, None, true),
            (302, Some(""), true),
            (304, Some("/x"), true),
            (199, None, false),
            (400, Some("/x"), false),
            (503, None, false),
        ] {
            let verdict = asked().judge(POD, status, location);
            assert_eq!(verdict, Verdict::Passes(passes), "{status} {location:?}");
        }
    }
}
