//! Tables for people: aligned columns without lines.

use std::ops::Range;

use comfy_table::{CellAlignment, Row, Table, presets};

/// A table without rows; the columns `numbers` are aligned on the right.
pub(crate) fn aligned<'a>(header: impl IntoIterator<Item = &'a str>, numbers: Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(Row::from(header));
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if numbers.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
