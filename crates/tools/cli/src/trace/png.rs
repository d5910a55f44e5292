//! The still picture as pixels, drawn from the very SVG of `--format svg`.
//!
//! Letters come from the fonts of the system. Without any, the labels would be missing, so that is an
//! error and not a picture.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Largest edge of a picture, pixels: 256 MiB at most.
const EDGE_MAX: u32 = 8192;

/// A PNG of a drawing, `scale` pixels for each of its own.
///
/// # Errors
/// No font, a drawing that is too large, or one that cannot be drawn, as a sentence.
pub(super) fn png(svg: &str, scale: u8) -> Result<Vec<u8>, String> {
    let mut options = Options { font_family: "DejaVu Sans".to_owned(), ..Options::default() };
    let fonts = options.fontdb_mut();
    fonts.load_system_fonts();
    if fonts.is_empty() {
        return Err("no font is installed, so the picture would have no words: install one (for \
                    example fonts-dejavu-core), or use --format svg"
            .to_owned());
    }
    let tree = Tree::from_str(svg, &options).map_err(|e| format!("read the drawing: {e}"))?;
    let size = tree.size();
    let scale = f32::from(scale);
    let edge = |length: f32| (length * scale).ceil() as u32;
    let (width, height) = (edge(size.width()), edge(size.height()));
    if width.max(height) > EDGE_MAX {
        return Err(format!(
            "the picture would have {width} x {height} pixels, at most {EDGE_MAX} each way are made: \
             use a smaller --scale, or --format svg"
        ));
    }
    let mut pixels = Pixmap::new(width, height).ok_or("the drawing is empty")?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| format!("encode the picture: {e}"))
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a skipped test says so")]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_becomes_pixels_and_a_huge_one_is_refused() {
        let of = |w: u32| {
            format!(
                "<svg xmlns='http://www.w3.org/2000/svg' width='{w}' height='10'>\
                 <rect width='5' height='10' fill='#ff0000'/></svg>"
            )
        };
        let made = match png(&of(20), 2) {
            Err(error) if error.contains("no font") => {
                println!("skipped: {error}");
                return;
            }
            made => made.unwrap(),
        };
        let pixels = Pixmap::decode_png(&made).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (40, 20));
        let at = |x, y| pixels.pixel(x, y).map(|p| (p.red(), p.alpha()));
        assert_eq!((at(9, 19), at(11, 0)), (Some((255, 255)), Some((0, 0))));
        assert!(png(&of(5000), 2).unwrap_err().contains("--scale"));
        assert!(png("no drawing", 1).is_err());
    }
}
