# For those who have Docker; `cargo xtask image` makes the same image without it.
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends cmake clang ca-certificates
WORKDIR /source
COPY . .
RUN target="$(rustc -vV | sed -n 's/^host: //p')" \
 && RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --locked --package elasti --no-default-features --profile image --target "$target" \
 && cp "target/$target/image/elasti" /elasti

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /elasti /elasti
USER 65532:65532
ENTRYPOINT ["/elasti"]
