//! The files of the page, embedded in the binary, with their types and ETags.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// One file of the page.
struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($path:literal, $kind:expr) => {
        Asset {
            path: $path,
            kind: $kind,
            text: include_str!(concat!("../../../web/", $path)),
        }
    };
}

const ASSETS: [Asset; 28] = [
    asset!("index.html", HTML),
    asset!("style.css", "text/css; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
    asset!("theme.js", SCRIPT),
    asset!("app.js", SCRIPT),
    asset!("stream.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("format.js", SCRIPT),
    asset!("state.js", SCRIPT),
    asset!("states.js", SCRIPT),
    asset!("ribbon.js", SCRIPT),
    asset!("sums.js", SCRIPT),
    asset!("month.js", SCRIPT),
    asset!("chart.js", SCRIPT),
    asset!("strip.js", SCRIPT),
    asset!("actions.js", SCRIPT),
    asset!("bulk.js", SCRIPT),
    asset!("row.js", SCRIPT),
    asset!("fleet.js", SCRIPT),
    asset!("details.js", SCRIPT),
    asset!("tabs.js", SCRIPT),
    asset!("cards.js", SCRIPT),
    asset!("why.js", SCRIPT),
    asset!("wake.js", SCRIPT),
    asset!("service.js", SCRIPT),
    asset!("csv.js", SCRIPT),
    asset!("savings.js", SCRIPT),
    asset!("activity.js", SCRIPT),
];

/// The file at a path, or that the browser has it already; `None` if there is none.
pub(crate) fn file(path: &str, headers: &HeaderMap) -> Option<Response> {
    let path = match path.trim_start_matches('/') {
        "" => "index.html",
        path => path,
    };
    let asset = ASSETS.iter().find(|asset| asset.path == path)?;
    let tag = tag(asset.text);
    let tags = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|tags| tags.to_str().ok());
    let cached = tags.is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag));
    // Revalidated each time: after an update no browser mixes old and new files.
    let caching = [
        (header::ETAG, tag.as_str()),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Some(match cached {
        true => (StatusCode::NOT_MODIFIED, caching).into_response(),
        false => (caching, [(header::CONTENT_TYPE, asset.kind)], asset.text).into_response(),
    })
}

fn tag(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole page, as it goes over the wire.
    const MAX_BYTES: usize = 132 * 1024;

    #[test]
    fn the_page_weighs_at_most_132_kib() {
        let weight: usize = ASSETS.iter().map(|asset| asset.text.len()).sum();
        assert!(weight <= MAX_BYTES, "{weight} bytes");
    }

    #[test]
    fn every_file_of_the_page_is_served_and_nothing_else() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
        let files = std::fs::read_dir(folder).unwrap();
        for file in files.map(|file| file.unwrap()) {
            if file.file_type().unwrap().is_file() {
                let name = file.file_name().into_string().unwrap();
                assert!(
                    ASSETS.iter().any(|asset| asset.path == name),
                    "{name} is not embedded"
                );
            }
        }
        for path in ["/../Cargo.toml", "/tests/pages.mjs", "//", "/index.html/"] {
            assert!(
                file(path, &HeaderMap::new()).is_none() || path == "//",
                "{path}"
            );
        }
    }

    #[test]
    fn what_a_browser_has_already_is_not_sent_again() {
        let first = file("/", &HeaderMap::new()).unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        let mut asked = HeaderMap::new();
        asked.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(
            file("/", &asked).unwrap().status(),
            StatusCode::NOT_MODIFIED
        );
        assert_eq!(file("/app.js", &asked).unwrap().status(), StatusCode::OK);
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_no_markup_is_made_from_text() {
        for Asset { path, text, .. } in &ASSETS {
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "https://",
                "style=\"",
            ] {
                assert!(!text.contains(forbidden), "{path} has {forbidden}");
            }
        }
    }
}
