//! The application state `MOVE`: the place of a node on the ring.
//!
//! ```text
//! BOOT,<token>
//! NORMAL,<token>
//! NORMAL,<token>,remove,<token of a dead node>
//! LEAVING,<token>
//! LEFT,<token>
//! ```

use crate::ring::{Partitioner, Token, TokenError};

/// What a node says of its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// It collects the data for this token. Writes go there, reads do not.
    Boot(Token),
    /// It owns this token.
    Normal {
        /// The token.
        token: Token,
        /// The token of a dead node that an operator had it remove.
        removed: Option<Token>,
    },
    /// It owns this token, and is handing its data over.
    Leaving(Token),
    /// It owned this token, and owns none any more.
    Left(Token),
}

/// A value of `MOVE` on which the gossip of an original fails, whoever passes it on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMove {
    /// The word wants another number of fields.
    #[error("MOVE has {0} fields")]
    Fields(usize),
    /// A token is none of the cluster's partitioner.
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl Move {
    /// Reads a value; None if its first word is not known, which an original ignores.
    pub fn parse(partitioner: Partitioner, value: &str) -> Result<Option<Self>, BadMove> {
        let fields: Vec<&str> = value.split(',').collect();
        let token = |text| partitioner.parse_token(text).map_err(BadMove::Token);
        Ok(Some(match fields[..] {
            ["BOOT", text] => Self::Boot(token(text)?),
            ["LEAVING", text] => Self::Leaving(token(text)?),
            ["LEFT", text] => Self::Left(token(text)?),
            ["NORMAL", text, "remove", removed, ..] => {
                Self::Normal { token: token(text)?, removed: Some(token(removed)?) }
            }
            ["NORMAL"] | ["NORMAL", _, "remove"] => return Err(BadMove::Fields(fields.len())),
            ["NORMAL", text, ..] => Self::Normal { token: token(text)?, removed: None },
            ["BOOT" | "LEAVING" | "LEFT", ..] => return Err(BadMove::Fields(fields.len())),
            _ => return Ok(None),
        }))
    }

    /// The value, as [`Self::parse`] reads it.
    pub fn format(&self, partitioner: Partitioner) -> String {
        let text = |token| partitioner.format_token(token);
        match self {
            Self::Boot(token) => format!("BOOT,{}", text(token)),
            Self::Normal { token, removed: None } => format!("NORMAL,{}", text(token)),
            Self::Normal { token, removed: Some(removed) } => {
                format!("NORMAL,{},remove,{}", text(token), text(removed))
            }
            Self::Leaving(token) => format!("LEAVING,{}", text(token)),
            Self::Left(token) => format!("LEFT,{}", text(token)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_written_back() {
        let [five, six] = [5, 6].map(Token::Random);
        for (value, expected) in [
            ("BOOT,5", Move::Boot(five.clone())),
            ("NORMAL,5", Move::Normal { token: five.clone(), removed: None }),
            ("NORMAL,5,remove,6", Move::Normal { token: five.clone(), removed: Some(six) }),
            ("LEAVING,5", Move::Leaving(five.clone())),
            ("LEFT,5", Move::Left(five)),
        ] {
            assert_eq!(expected.format(Partitioner::Random), value);
            assert_eq!(Move::parse(Partitioner::Random, value), Ok(Some(expected)));
        }
    }

    #[test]
    fn what_an_original_fails_on_is_bad_and_what_it_ignores_is_not() {
        let parse = |value| Move::parse(Partitioner::Random, value);
        for value in ["NORMAL", "BOOT", "BOOT,1,2", "LEFT", "LEAVING,1,", "NORMAL,1,remove"] {
            assert!(matches!(parse(value), Err(BadMove::Fields(_))), "{value}");
        }
        for value in ["NORMAL,x", "BOOT,", "NORMAL,1,remove,y", "LEFT,1e5"] {
            assert!(matches!(parse(value), Err(BadMove::Token(_))), "{value}");
        }
        for value in ["", "PAUSED", "normal,1", "X,1,2,3"] {
            assert_eq!(parse(value), Ok(None), "{value}");
        }
        let normal = Move::Normal { token: Token::Random(1), removed: None };
        assert_eq!(parse("NORMAL,1,else"), Ok(Some(normal)));
    }

    #[test]
    fn the_form_of_collated_tokens_for_people_is_read() {
        let token = Token::collated(vec![0xab, 1].into());
        let read = Move::parse(Partitioner::CollatingOrderPreserving, "LEAVING,Token(bytes[ab01])");
        assert_eq!(read, Ok(Some(Move::Leaving(token))));
    }
}
