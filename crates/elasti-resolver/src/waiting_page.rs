//! The page that a browser sees while a service is being woken: it refreshes itself and needs nothing from elsewhere.
//! Never shows a part of the request, nor a name that is not escaped.

use std::fmt::Write as _;

use elasti_api::Reason;
use elasti_core::ports::ServiceKey;
use http::header::{self, HeaderMap};
use http::{Method, Request};

/// How often the page asks again.
pub(crate) const REFRESH_SECONDS: u32 = 2;

/// Nothing but the page's own style may be used.
pub(crate) const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; base-uri 'none'";

/// Whether a person will see the response: browsers send `text/html` when they open a page, and only then.
pub(crate) fn is_for<B>(request: &Request<B>) -> bool {
    request.method() == Method::GET
        && !request.headers().contains_key(header::UPGRADE)
        && accepts_html(request.headers())
}

fn accepts_html(headers: &HeaderMap) -> bool {
    let all = headers.get_all(header::ACCEPT);
    let kinds = all.iter().filter_map(|value| value.to_str().ok());
    kinds.flat_map(|value| value.split(',')).any(|kind| {
        let mut parts = kind.split(';').map(str::trim);
        let html = parts
            .next()
            .is_some_and(|kind| kind.eq_ignore_ascii_case("text/html"));
        let refused = |part: &str| {
            let weight = part.strip_prefix("q=").map(str::parse::<f32>);
            matches!(weight, Some(Ok(weight)) if weight <= 0.0)
        };
        html && !parts.any(refused)
    })
}

/// What takes long, in words of ours: what other components say of it may name what a visitor should not know.
fn long_wait(delay: Option<Reason>) -> &'static str {
    match delay {
        Some(Reason::NotScheduled) => "It waits for a node with room for it.",
        Some(Reason::Initializing) => "It is being prepared, which takes a while.",
        Some(Reason::Pulling) => "Its image could not be fetched so far; that is tried again.",
        Some(Reason::Restarting) => "It ended early and is being started again.",
        Some(Reason::NotReady) => "It runs, and is not ready yet.",
        Some(Reason::QuotaExceeded) => "It waits for room in the quota of its namespace.",
        Some(Reason::WebhookFailed) => {
            "The cluster could not admit it so far; that is tried again."
        }
        _ => "",
    }
}

/// The page for one service.
pub(crate) fn render(key: &ServiceKey, delay: Option<Reason>) -> String {
    let long_wait = long_wait(delay);
    let (service, namespace) = (escaped(&key.service), escaped(&key.namespace));
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"robots\" content=\"noindex\">
<meta http-equiv=\"refresh\" content=\"{REFRESH_SECONDS}\">
<title>{service} is starting</title>
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; }}
body {{ min-height: 100vh; margin: 0; display: grid; place-content: center; text-align: center; padding: 1rem; }}
.dot {{ display: inline-block; width: .6rem; height: .6rem; margin: .2rem; border-radius: 50%; background: currentColor; animation: beat 1.2s infinite ease-in-out; }}
.dot:nth-child(2) {{ animation-delay: .2s; }}
.dot:nth-child(3) {{ animation-delay: .4s; }}
@keyframes beat {{ 0%, 80%, 100% {{ opacity: .2; }} 40% {{ opacity: 1; }} }}
@media (prefers-reduced-motion: reduce) {{ .dot {{ animation: none; }} }}
p {{ opacity: .75; }}
</style>
</head>
<body>
<main role=\"status\">
<div aria-hidden=\"true\"><span class=\"dot\"></span><span class=\"dot\"></span><span class=\"dot\"></span></div>
<h1>{service} is starting</h1>
<p>It was asleep in {namespace}. This page opens by itself as soon as it is ready.</p>
<p>{long_wait}</p>
</main>
</body>
</html>
"
    )
}

/// Kubernetes allows no such letter in a name; this does not rely on it.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.') {
            safe.push(letter);
        } else {
            let _ = write!(safe, "&#{};", u32::from(letter));
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, head: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method);
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn only_a_browser_that_opens_a_page_sees_it() {
        let browser = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
        assert!(is_for(&request(Method::GET, &[browser])));
        for other in [
            request(Method::POST, &[browser]),
            request(Method::GET, &[("accept", "*/*")]),
            request(Method::GET, &[("accept", "application/json")]),
            request(Method::GET, &[("accept", "text/html;q=0, */*")]),
            request(Method::GET, &[]),
            request(Method::GET, &[browser, ("upgrade", "websocket")]),
        ] {
            assert!(!is_for(&other), "{other:?}");
        }
    }

    #[test]
    fn it_says_what_takes_long() {
        let delays = Reason::ALL.into_iter().filter(|one| one.is_delay());
        for delay in delays {
            let words = long_wait(Some(delay));
            assert!(!words.is_empty(), "{delay}");
            assert!(render(&ServiceKey::new("shop", "cart"), Some(delay)).contains(words));
        }
    }

    #[test]
    fn names_are_escaped_and_nothing_comes_from_elsewhere() {
        let page = render(&ServiceKey::new("a\"b", "<script>&'"), None);
        assert!(!page.contains("<script>"), "{page}");
        assert!(
            page.contains("&#60;script&#62;&#38;&#39; is starting"),
            "{page}"
        );
        for elsewhere in ["http://", "https://", "src=", "href=", "url("] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
    }
}
