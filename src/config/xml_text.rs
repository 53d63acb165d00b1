//! Documents as text.

use super::xml::Element;
use std::fmt::{self, Write};

/// The document of which this is the root. Comments are lost, and text of its own that an element
/// has beside children: no element of a configuration has both.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_element(self, 0, f)
    }
}

/// As deep as documents may be.
fn write_element(element: &Element, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Element { name, attributes, text, children, .. } = element;
    let indent = depth * 2;
    write!(f, "{:indent$}<{name}", "")?;
    for attribute in attributes {
        write!(f, " {}=\"", attribute.name)?;
        escape(&attribute.value, f)?;
        f.write_char('"')?;
    }
    f.write_char('>')?;
    if children.is_empty() {
        escape(text.trim(), f)?;
    } else {
        f.write_char('\n')?;
        for child in children {
            write_element(child, depth + 1, f)?;
        }
        write!(f, "{:indent$}", "")?;
    }
    writeln!(f, "</{name}>")
}

fn escape(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        match c {
            '&' => f.write_str("&amp;")?,
            '<' => f.write_str("&lt;")?,
            '>' => f.write_str("&gt;")?,
            '"' => f.write_str("&quot;")?,
            // In an attribute they would be read as blanks.
            '\t' | '\n' | '\r' => write!(f, "&#{};", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::EMBEDDED;

    /// Without the lines, which change.
    fn shape(element: &Element) -> String {
        let attributes: Vec<_> = element.attributes.iter().map(|a| (&a.name, &a.value)).collect();
        let children: Vec<String> = element.children.iter().map(shape).collect();
        let text = if children.is_empty() { element.text.trim() } else { "" };
        format!("{} {attributes:?} {text:?} {children:?}", element.name)
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let odd =
            "<a b='x &quot;&lt;&#10;y&#9;'><!-- not this --><c> 1 &lt; 2 &amp; 3 </c><d/></a>";
        for text in [EMBEDDED, odd] {
            let element = Element::parse(text).unwrap();
            let again = Element::parse(&element.to_string()).unwrap();
            assert_eq!(shape(&again), shape(&element));
        }
    }
}
