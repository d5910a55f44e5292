//! Renders the SVG of `--format svg` as PNG.
//!
//! Text uses the system's fonts. If there are none, rendering fails, because the labels would be
//! missing.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::{Database, Family, Query};
use resvg::usvg::{Options, Tree};

/// Maximum edge length in pixels, which limits a picture to 256 MiB.
const EDGE_MAX: u32 = 8192;

/// Renders a drawing as PNG, with `scale` pixels per unit.
///
/// # Errors
/// No font is installed, or the drawing is too large or invalid.
pub(super) fn png(svg: &str, scale: u8) -> Result<Vec<u8>, String> {
    let mut options = Options { font_family: "DejaVu Sans".to_owned(), ..Options::default() };
    let fonts = options.fontdb_mut();
    fonts.load_system_fonts();
    if fonts.is_empty() {
        return Err("no font is installed for the labels; install one (for example \
                    fonts-dejavu-core) or use --format svg"
            .to_owned());
    }
    set_generic_families(fonts);
    let tree =
        Tree::from_str(svg, &options).map_err(|e| format!("cannot parse the drawing: {e}"))?;
    let size = tree.size();
    let scale = f32::from(scale);
    let edge = |length: f32| (length * scale).ceil() as u32;
    let (width, height) = (edge(size.width()), edge(size.height()));
    if width.max(height) > EDGE_MAX {
        return Err(format!(
            "the picture would be {width} x {height} pixels, above the limit of {EDGE_MAX} per edge; \
             use a smaller --scale or --format svg"
        ));
    }
    let mut pixels = Pixmap::new(width, height).ok_or("the drawing is empty")?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| format!("cannot encode the picture: {e}"))
}

/// Makes the generic families use an installed font. Without this, labels would be missing on a system that has none of
/// the fonts named in the drawing, such as Arial.
fn set_generic_families(fonts: &mut Database) {
    let first = fonts.faces().find_map(|face| face.families.first());
    let Some(name) = first.map(|(name, _)| name.clone()) else { return };
    if !has(fonts, Family::SansSerif) {
        fonts.set_sans_serif_family(name.as_str());
    }
    if !has(fonts, Family::Serif) {
        fonts.set_serif_family(name);
    }
}

/// Reports whether a font of a family is installed.
fn has(fonts: &Database, family: Family<'_>) -> bool {
    fonts.query(&Query { families: &[family], ..Query::default() }).is_some()
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a skipped test says so")]
mod tests {
    use super::*;
    use resvg::usvg::fontdb::{FaceInfo, ID, Language, Source, Stretch, Style, Weight};
    use std::sync::Arc;

    #[test]
    fn labels_use_a_font_of_any_family() {
        let mut fonts = Database::new();
        fonts.push_face_info(FaceInfo {
            id: ID::dummy(),
            source: Source::Binary(Arc::new(Vec::<u8>::new())),
            index: 0,
            families: vec![("Cantarell".to_owned(), Language::English_UnitedStates)],
            post_script_name: String::new(),
            style: Style::Normal,
            weight: Weight::NORMAL,
            stretch: Stretch::Normal,
            monospaced: false,
        });
        let generic = |fonts: &Database| [Family::SansSerif, Family::Serif].map(|f| has(fonts, f));
        assert_eq!(generic(&fonts), [false, false]);
        set_generic_families(&mut fonts);
        assert_eq!(generic(&fonts), [true, true]);
    }

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
