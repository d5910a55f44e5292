//! Parses the kernel's event descriptions, `events/SYSTEM/NAME/format`. Pure.

/// Maximum length of a parsed text in bytes.
const TEXT_MAX: usize = 64 << 10;
/// Maximum number of fields per event.
const FIELDS_MAX: usize = 128;

/// One field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name, without brackets.
    pub name: String,
    /// Offset within the event in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub size: usize,
}

/// The layout of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Number with which its records begin.
    pub id: u16,
    /// Fields of the event.
    pub fields: Vec<Field>,
}

impl Format {
    /// Parses a format description; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.get(..TEXT_MAX.min(text.len()))?;
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let fields: Vec<Field> = text.lines().filter_map(field).take(FIELDS_MAX).collect();
        (!fields.is_empty()).then_some(Self { id, fields })
    }

    /// Returns a field by name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// Parses a line such as `field:unsigned char common_flags; offset:2; size:1; signed:0;`.
fn field(line: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let declared = parts.next()?;
    let name = declared.rsplit([' ', '*']).next()?;
    let name = name.split('[').next().filter(|name| !name.is_empty())?;
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    Some(Field { name: name.to_owned(), offset, size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_format_is_parsed() {
        let format = Format::parse(include_str!("fixtures/sched_switch.format")).unwrap();
        assert_eq!(format.fields.len(), 11);
        let place = |name| format.field(name).map(|f| (f.offset, f.size));
        assert_eq!(place("common_pid"), Some((4, 4)));
        assert_eq!(place("prev_state"), Some((32, 8)));
        assert_eq!(place("next_comm"), Some((40, 16)));
        assert_eq!(place("nothing"), None);
    }

    #[test]
    fn malformed_texts_are_refused() {
        for text in ["", "ID: x\n", "ID: 3\n", "field:int a; offset:0; size:4;"] {
            assert_eq!(Format::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_ends(text in "(ID: [0-9]{0,6}\n)?(field:[a-z \\[\\]*]{0,9};[a-z:0-9; ]{0,30}\n){0,4}\\PC{0,20}") {
            let _ = Format::parse(&text);
        }
    }
}
