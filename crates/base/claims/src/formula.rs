//! Small arithmetic over named numbers: `elapsed_ns - calls.read.total_ns`.
//!
//! Names contain dots and dashes, so tokens must be separated by spaces: numbers, names, `+ - * /`
//! and parentheses. `*` and `/` have higher precedence than `+` and `-`. A formula is parsed and
//! evaluated in one pass. There are no functions and no state, and parentheses nest at most 16
//! deep.

/// Maximum nesting depth of parentheses.
const DEPTH_MAX: usize = 16;

/// Why a formula has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormulaError {
    /// The formula is malformed.
    #[error("invalid formula '{formula}': {reason}")]
    Form {
        /// The formula.
        formula: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A name has no value.
    #[error("unknown number '{name}'")]
    Name {
        /// The name.
        name: String,
    },
}

struct Reader<'a, F> {
    formula: &'a str,
    tokens: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
    value: F,
    depth: usize,
}

/// Evaluates a formula; `value` looks up the number for a name. The result can be infinite or NaN,
/// for example after a division by zero.
///
/// # Errors
/// Fails if the formula is malformed or a name is unknown.
pub fn evaluate(formula: &str, value: impl Fn(&str) -> Option<f64>) -> Result<f64, FormulaError> {
    let tokens = formula.split_whitespace().peekable();
    let mut reader = Reader { formula, tokens, value, depth: 0 };
    let result = reader.sum()?;
    match reader.tokens.next() {
        None => Ok(result),
        Some(rest) => Err(reader.wrong(format!("unexpected '{rest}'"))),
    }
}

/// Returns the names used in a formula.
pub fn names(formula: &str) -> Vec<&str> {
    let word = |t: &&str| !"+-*/()".contains(*t) && t.parse::<f64>().is_err();
    formula.split_whitespace().filter(word).collect()
}

impl<F: Fn(&str) -> Option<f64>> Reader<'_, F> {
    fn wrong(&self, reason: String) -> FormulaError {
        FormulaError::Form { formula: self.formula.to_owned(), reason }
    }

    fn sum(&mut self) -> Result<f64, FormulaError> {
        let mut left = self.product()?;
        while let Some(sign) = self.tokens.next_if(|t| matches!(*t, "+" | "-")) {
            let right = self.product()?;
            left = if sign == "+" { left + right } else { left - right };
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<f64, FormulaError> {
        let mut left = self.item()?;
        while let Some(sign) = self.tokens.next_if(|t| matches!(*t, "*" | "/")) {
            let right = self.item()?;
            left = if sign == "*" { left * right } else { left / right };
        }
        Ok(left)
    }

    fn item(&mut self) -> Result<f64, FormulaError> {
        match self.tokens.next() {
            None => Err(self.wrong("expected a number at the end".to_owned())),
            Some("(") => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(self.wrong(format!("parentheses nest deeper than {DEPTH_MAX}")));
                }
                let inner = self.sum()?;
                self.depth -= 1;
                match self.tokens.next() {
                    Some(")") => Ok(inner),
                    _ => Err(self.wrong("unclosed parenthesis".to_owned())),
                }
            }
            Some(sign @ ("+" | "-" | "*" | "/" | ")")) => {
                Err(self.wrong(format!("expected a number, found '{sign}'")))
            }
            Some(token) => match token.parse() {
                Ok(number) => Ok(number),
                Err(_) => {
                    (self.value)(token).ok_or_else(|| FormulaError::Name { name: token.to_owned() })
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str) -> Option<f64> {
        match name {
            "a" => Some(8.0),
            "share.on-cpu" => Some(2.0),
            _ => None,
        }
    }

    #[test]
    fn operators_have_precedence() {
        for (formula, expected) in [
            ("a", 8.0),
            ("share.on-cpu", 2.0),
            ("a - share.on-cpu", 6.0),
            ("1 + 2 * 3 - 4 / 2", 5.0),
            ("( 1 + 2 ) * 3", 9.0),
            ("a / share.on-cpu / 2", 2.0),
            ("10 - 3 - 2", 5.0),
            ("-1.5 * 2", -3.0),
        ] {
            assert_eq!(evaluate(formula, value).unwrap(), expected, "{formula}");
        }
        assert_eq!(names("( a - b.c-d ) / 2 * a"), ["a", "b.c-d", "a"]);
    }

    #[test]
    fn broken_formulas_are_refused() {
        for formula in ["", "a +", "( a", "a )", "a a", "+", "* a", "( )"] {
            assert!(
                matches!(evaluate(formula, value), Err(FormulaError::Form { .. })),
                "{formula}"
            );
        }
        let deep = format!("{}1{}", "( ".repeat(40), " )".repeat(40));
        assert!(evaluate(&deep, value).unwrap_err().to_string().contains("deeper than"));
        assert_eq!(
            evaluate("a - nothing", value),
            Err(FormulaError::Name { name: "nothing".to_owned() })
        );
    }
}
