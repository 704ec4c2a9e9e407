//! Which tokens are believed, and why the others are not.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use serde_json::json;

use super::*;
use crate::callers::mint::{AUDIENCE, ISSUER, Mint, NOW, OWNER, claims, encode, issuer};

fn check(token: &str, issuer: &Issuer) -> Result<String, Flaw> {
    let token = Token::parse(token)?;
    let owner = token.owner(issuer, AUDIENCE, NOW)?;
    Ok(owner.user)
}

#[test]
fn a_good_token_of_every_kind_of_key_tells_its_owner() {
    let mints = Mint::all_kinds();
    let issuer = issuer(&mints.each_ref());
    for mint in &mints {
        let token = mint.token(&claims());
        assert_eq!(check(&token, &issuer).as_deref(), Ok(OWNER), "{}", mint.id);
    }
}

#[test]
fn an_audience_may_stand_alone_or_among_others() {
    let mint = Mint::curve("k");
    let issuer = issuer(&[&mint]);
    for aud in [json!(AUDIENCE), json!(["vault", AUDIENCE])] {
        let mut claims = claims();
        claims["aud"] = aud;
        assert!(check(&mint.token(&claims), &issuer).is_ok());
    }
}

#[test]
fn what_a_token_says_must_be_true_now_and_meant_for_us() {
    let mint = Mint::curve("k");
    let issuer = issuer(&[&mint]);
    for (name, value, flaw) in [
        ("aud", json!("vault"), Flaw::Audience),
        ("aud", json!([]), Flaw::Audience),
        ("aud", json!(null), Flaw::Malformed),
        ("iss", json!("https://elsewhere"), Flaw::Issuer),
        ("iss", json!([ISSUER]), Flaw::Malformed),
        ("exp", json!(NOW - 60), Flaw::Expired),
        ("exp", json!(0), Flaw::Expired),
        ("exp", json!(i64::MIN), Flaw::Expired),
        ("exp", json!(null), Flaw::Malformed),
        ("exp", json!("never"), Flaw::Malformed),
        ("nbf", json!(NOW + 61), Flaw::NotYet),
        ("nbf", json!(i64::MAX), Flaw::NotYet),
        ("sub", json!("kubernetes-admin"), Flaw::Malformed),
        ("sub", json!(null), Flaw::Malformed),
    ] {
        let mut claims = claims();
        claims[name] = value.clone();
        let checked = check(&mint.token(&claims), &issuer);
        assert_eq!(checked, Err(flaw), "{name}: {value}");
    }
}

#[test]
fn clocks_may_be_a_minute_apart_and_a_token_is_good_for_no_longer() {
    let mint = Mint::curve("k");
    let issuer = issuer(&[&mint]);
    let mut claims = claims();
    claims["nbf"] = json!(NOW + 60);
    claims["exp"] = json!(NOW - 59);
    let token = mint.token(&claims);
    let owner = Token::parse(&token).unwrap().owner(&issuer, AUDIENCE, NOW);
    assert_eq!(owner.unwrap().good_for, Some(Duration::from_secs(1)));
}

#[test]
fn a_forged_signature_is_no_signature() {
    for mint in [Mint::rsa("k"), Mint::curve("k")] {
        let issuer = issuer(&[&mint]);
        let good = mint.token(&claims());
        let (signed, signature) = good.rsplit_once('.').unwrap();
        let mut bytes = mint.signature(signed);
        bytes[7] ^= 1;
        let changed = format!("{signed}.{}", encode(&bytes));
        assert_eq!(check(&changed, &issuer), Err(Flaw::Signature));
        // Another key under the same name.
        let forger = match mint.algorithm {
            "RS256" => Mint::rsa("k"),
            _ => Mint::curve("k"),
        };
        let forged = forger.token(&claims());
        assert_eq!(check(&forged, &issuer), Err(Flaw::Signature));
        // Another text under a good signature.
        let mut other = claims();
        other["sub"] = json!("system:serviceaccount:elasti:other");
        let header = signed.split_once('.').unwrap().0;
        let swapped = format!("{header}.{}.{signature}", encode(other.to_string()));
        assert_eq!(check(&swapped, &issuer), Err(Flaw::Signature));
        assert_eq!(check(&format!("{signed}."), &issuer), Err(Flaw::Signature));
    }
}

#[test]
fn the_algorithm_is_the_keys_and_never_the_tokens_choice() {
    for mint in [Mint::rsa("k"), Mint::curve("k")] {
        let issuer = issuer(&[&mint]);
        let choices = [
            "none", "None", "HS256", "RS256", "ES256", "ES384", "PS256", "",
        ];
        for alg in choices.into_iter().filter(|alg| *alg != mint.algorithm) {
            let header = json!({"alg": alg, "kid": "k"});
            let token = mint.token_with(&header, &claims());
            assert_eq!(check(&token, &issuer), Err(Flaw::Algorithm), "{alg}");
            // As "none" has it: without any signature.
            let bare = token.rsplit_once('.').unwrap().0;
            assert_eq!(check(&format!("{bare}."), &issuer), Err(Flaw::Algorithm));
        }
        let critical = json!({"alg": mint.algorithm, "kid": "k", "crit": ["b64"], "b64": false});
        let token = mint.token_with(&critical, &claims());
        assert_eq!(check(&token, &issuer), Err(Flaw::Malformed));
    }
}

#[test]
fn a_key_that_the_issuer_does_not_publish_is_unknown() {
    let (known, other) = (Mint::curve("known"), Mint::curve("other"));
    let issuer = issuer(&[&known]);
    assert_eq!(
        check(&other.token(&claims()), &issuer),
        Err(Flaw::UnknownKey)
    );
    let nameless = known.token_with(&json!({"alg": "ES256"}), &claims());
    assert_eq!(check(&nameless, &issuer), Err(Flaw::UnknownKey));
}

#[test]
fn a_key_that_is_not_understood_does_not_hide_the_others() {
    let good = Mint::curve("good");
    let mut short = Mint::curve("short").published();
    short["x"] = json!(encode([1, 2, 3]));
    let mut other_use = Mint::curve("enc").published();
    other_use["use"] = json!("enc");
    let mut misnamed = Mint::curve("misnamed").published();
    misnamed["alg"] = json!("RS256");
    let keys = json!({"keys": [
        7, {"kty": "oct", "kid": "secret", "k": "AAAA"}, {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": "AA"},
        short, other_use, misnamed, good.published(),
    ]});
    let configuration = json!({"issuer": ISSUER}).to_string();
    let issuer = Issuer::parse(configuration.as_bytes(), keys.to_string().as_bytes()).unwrap();
    for id in ["secret", "ed", "short", "enc", "misnamed"] {
        assert!(issuer.key(id).is_none(), "{id}");
    }
    assert!(check(&good.token(&claims()), &issuer).is_ok());
}

#[test]
fn anything_else_is_no_token_and_nothing_panics() {
    let mint = Mint::curve("k");
    let issuer = issuer(&[&mint]);
    let good = mint.token(&claims());
    for end in 0..good.len() {
        assert!(check(&good[..end], &issuer).is_err(), "{end}");
    }
    for text in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "e30.e30.e30",
        "e30.e30.",
        "\u{e9}.x.y",
    ] {
        assert_eq!(check(text, &issuer), Err(Flaw::Malformed), "{text}");
    }
    assert_eq!(check(&format!("{good}."), &issuer), Err(Flaw::Malformed));
}

/// What an API server of Kubernetes 1.34.4 published and issued, once with each kind of key.
#[test]
fn tokens_of_a_real_api_server_are_believed_while_they_last() {
    let configuration = include_bytes!("recorded/openid-configuration.json");
    let issuer = Issuer::parse(configuration, include_bytes!("recorded/jwks.json")).unwrap();
    let (begins, ends) = (1_794_764_869, 1_794_765_464);
    for token in [
        include_str!("recorded/rs256.jwt"),
        include_str!("recorded/es256.jwt"),
    ] {
        let at = |now| Token::parse(token.trim())?.owner(&issuer, AUDIENCE, now);
        let user = at(begins).map(|owner| owner.user);
        let owner = "system:serviceaccount:default:elasti-resolver";
        assert_eq!(user.as_deref(), Ok(owner));
        assert_eq!(at(begins - 120), Err(Flaw::NotYet));
        assert_eq!(at(ends + 120), Err(Flaw::Expired));
    }
}
