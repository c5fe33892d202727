//! Text and colours of the pictures.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

/// A picture that could not be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// There is nothing to show.
    #[error("nothing to draw: {0}")]
    Empty(&'static str),
    /// What the drawing library says.
    #[error("the picture cannot be drawn: {0}")]
    Drawing(String),
}

/// The area that is drawn on.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Text.
pub const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
/// Text of less importance.
pub const FAINT_INK: RGBColor = RGBColor(0x6e, 0x77, 0x81);
/// Lines behind the marks.
pub const GRID: RGBColor = RGBColor(0xe1, 0xe4, 0xe8);
/// The background.
pub const GROUND: RGBColor = RGBColor(0xff, 0xff, 0xff);

/// One of the colours of Okabe and Ito, which colour-blind readers tell apart.
pub const VERMILION: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
/// One of the colours of Okabe and Ito, which colour-blind readers tell apart.
pub const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
/// One of the colours of Okabe and Ito, which colour-blind readers tell apart.
pub const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
/// One of the colours of Okabe and Ito, which colour-blind readers tell apart.
pub const SKY: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
/// One of the colours of Okabe and Ito, which colour-blind readers tell apart.
pub const PURPLE: RGBColor = RGBColor(0xcc, 0x79, 0xa7);

/// The font family of all text: the default of the reader's system.
const FONT: &str = "sans-serif";

/// What the drawing library reports.
pub fn failed(error: impl std::fmt::Display) -> PictureError {
    PictureError::Drawing(error.to_string())
}

/// Text of a size in pixels, anchored at its middle height.
pub fn style(size: u32, color: &'static RGBColor, h_pos: HPos) -> TextStyle<'static> {
    // plotters writes a size divided by 1.24 into the file.
    let pixels = f64::from(size) * 1.24;
    TextStyle::from((FONT, pixels).into_font()).color(color).pos(Pos::new(h_pos, VPos::Center))
}

/// Writes a line of text.
///
/// # Errors
///
/// What the drawing library reports.
pub fn write(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    style: &TextStyle<'_>,
) -> Result<(), PictureError> {
    area.draw(&Text::new(text.to_owned(), at, style.clone())).map_err(failed)
}

/// Bold text of a size in pixels, anchored at its middle height.
pub fn bold(style: TextStyle<'static>) -> TextStyle<'static> {
    TextStyle { font: style.font.style(FontStyle::Bold), ..style }
}
