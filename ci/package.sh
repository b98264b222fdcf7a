# package: every crate that is published, packed as it would be and built from that
# Each is packed, unpacked and built beside the others that it needs; each brings its licences. The folder is its own: in
# target the program would take the place of the one that tests run at the same time.
# Cargo would build one crate with another as an earlier run has unpacked and built it: it tells them apart by version alone.
# What it unpacks of this machine is in folders whose names begin with a dash.
rm -rf target/packages "${CARGO_HOME:-$HOME/.cargo}"/registry/{src,cache}/-*/sublet-*
cargo package --locked --target-dir target/packages "${published[@]/#/-p}"
for crate in "${published[@]}"; do
    for file in LICENSE-MIT LICENSE-APACHE README.md; do
        cargo package --locked --list -p "$crate" | grep -x "$file" > /dev/null || {
            echo "$crate: no $file in the package" >&2
            exit 1
        }
    done
done
