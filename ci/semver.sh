# semver REV: what the published crates have changed since the revision REV, as semver sees it; by hand
command -v cargo-semver-checks > /dev/null || cargo install --debug --quiet --locked cargo-semver-checks
for crate in "${published[@]}"; do
    # A program has no interface for semver to compare.
    [ "$crate" = sublet-cli ] || cargo semver-checks --package "$crate" --baseline-rev "${1:?semver needs the revision to compare with}"
done
