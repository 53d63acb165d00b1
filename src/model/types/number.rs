//! Numbers of any type, for functions and arithmetic.

use super::decimal::{check_length, low_bits};
use super::{Decimal, MAX_NUMBER_BYTES, Native};
use num_bigint::{BigInt, Sign};
use std::fmt;

/// A number with its type.
#[derive(Debug, Clone, PartialEq)]
pub enum Number {
    /// `tinyint`, `smallint`, `int` or `bigint`, which stands also for `counter`.
    Integer(Native, i64),
    /// `varint`
    Varint(BigInt),
    /// `float`
    Float(f32),
    /// `double`
    Double(f64),
    /// `decimal`
    Decimal(Decimal),
}

/// Failure of a calculation. Displays as the text of Cassandra.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArithmeticError {
    /// Division of an integer by zero.
    #[error("/ by zero")]
    Zero,
    /// Division of a `varint` or `decimal` by zero.
    #[error("BigInteger divide by zero")]
    BigZero,
    /// NaN where a decimal is needed.
    #[error("A NaN cannot be converted into a decimal")]
    NaN,
    /// Infinity where a decimal is needed.
    #[error("An infinite number cannot be converted into a decimal")]
    Infinite,
    /// A result that its type cannot hold.
    #[error("The result is out of range")]
    Range,
}

/// An operator between two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
}

/// Bytes of an integer of fixed length.
fn integer_length(of_type: Native) -> Option<usize> {
    match of_type {
        Native::Tinyint => Some(1),
        Native::Smallint => Some(2),
        Native::Int => Some(4),
        Native::Bigint | Native::Counter => Some(8),
        _ => None,
    }
}

impl Number {
    /// The integer of a type that has the lowest bits of this one.
    pub(super) fn integer(of_type: Native, number: i64) -> Self {
        match of_type {
            Native::Tinyint => Self::Integer(of_type, i64::from(number as i8)),
            Native::Smallint => Self::Integer(of_type, i64::from(number as i16)),
            Native::Int => Self::Integer(of_type, i64::from(number as i32)),
            _ => Self::Integer(Native::Bigint, number),
        }
    }

    /// Reads the bytes of a number. None for the empty value and for bytes that are no number of
    /// the type.
    pub fn decode(of_type: Native, value: &[u8]) -> Option<Self> {
        if let Some(length) = integer_length(of_type) {
            let number = value.iter().fold(0, |number, byte| number << 8 | i64::from(*byte));
            return (value.len() == length).then(|| Self::integer(of_type, number));
        }
        if value.len() > MAX_NUMBER_BYTES {
            return None;
        }
        Some(match of_type {
            Native::Varint if !value.is_empty() => {
                Self::Varint(BigInt::from_signed_bytes_be(value))
            }
            Native::Float => Self::Float(f32::from_be_bytes(value.try_into().ok()?)),
            Native::Double => Self::Double(f64::from_be_bytes(value.try_into().ok()?)),
            Native::Decimal => Self::Decimal(Decimal::decode(value)?),
            _ => return None,
        })
    }

    /// The bytes of the number.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Integer(of_type, number) => {
                let unused = 8 - integer_length(*of_type).unwrap_or(8);
                number.to_be_bytes()[unused..].into()
            }
            Self::Varint(number) => number.to_signed_bytes_be(),
            Self::Float(number) => number.to_be_bytes().into(),
            Self::Double(number) => number.to_be_bytes().into(),
            Self::Decimal(number) => number.encode(),
        }
    }

    /// The type of the number.
    pub fn native(&self) -> Native {
        match self {
            Self::Integer(of_type, _) => *of_type,
            Self::Varint(_) => Native::Varint,
            Self::Float(_) => Native::Float,
            Self::Double(_) => Native::Double,
            Self::Decimal(_) => Native::Decimal,
        }
    }

    /// The number as one of another type, as Java converts numbers: integers keep their lowest
    /// bits, floating-point numbers lose their fraction and stay within the range.
    pub fn cast(&self, to: Native) -> Result<Self, ArithmeticError> {
        Ok(match (to, self) {
            (Native::Float, _) => Self::Float(self.to_f32()),
            (Native::Double, _) => Self::Double(self.to_f64()),
            (Native::Varint, Self::Decimal(number)) => Self::Varint(number.truncated()?),
            (Native::Varint, _) => Self::Varint(self.to_big()),
            (Native::Decimal, _) => Self::Decimal(self.to_decimal()?),
            (Native::Tinyint | Native::Smallint, Self::Float(_) | Self::Double(_)) => {
                Self::integer(to, (self.to_f64() as i32).into())
            }
            (Native::Int, Self::Float(_) | Self::Double(_)) => {
                Self::Integer(to, (self.to_f64() as i32).into())
            }
            _ => Self::integer(to, self.to_i64()),
        })
    }

    /// The number with the other sign.
    #[must_use]
    pub fn negated(&self) -> Self {
        match self {
            Self::Integer(of_type, number) => Self::integer(*of_type, number.wrapping_neg()),
            Self::Varint(number) => Self::Varint(-number),
            Self::Float(number) => Self::Float(-number),
            Self::Double(number) => Self::Double(-number),
            Self::Decimal(number) => Self::Decimal(number.negated()),
        }
    }

    pub(super) fn to_i64(&self) -> i64 {
        match self {
            Self::Integer(_, number) => *number,
            Self::Varint(number) => low_bits(number),
            Self::Float(number) => *number as i64,
            Self::Double(number) => *number as i64,
            Self::Decimal(number) => number.low_bits(),
        }
    }

    fn to_big(&self) -> BigInt {
        match self {
            Self::Varint(number) => number.clone(),
            other => other.to_i64().into(),
        }
    }

    fn to_f32(&self) -> f32 {
        match self {
            Self::Float(number) => *number,
            Self::Double(number) => *number as f32,
            Self::Integer(_, number) => *number as f32,
            // Every text of digits with an exponent is a floating-point number.
            other => other.to_scientific().parse().unwrap_or(f32::NAN),
        }
    }

    fn to_f64(&self) -> f64 {
        match self {
            Self::Float(number) => f64::from(*number),
            Self::Double(number) => *number,
            Self::Integer(_, number) => *number as f64,
            other => other.to_scientific().parse().unwrap_or(f64::NAN),
        }
    }

    fn to_scientific(&self) -> String {
        match self {
            Self::Decimal(number) => number.to_scientific(),
            other => other.to_string(),
        }
    }

    fn to_decimal(&self) -> Result<Decimal, ArithmeticError> {
        match self {
            Self::Decimal(number) => Ok(number.clone()),
            Self::Float(_) | Self::Double(_) if self.to_f64().is_nan() => Err(ArithmeticError::NaN),
            Self::Float(_) | Self::Double(_) => {
                Decimal::parse(&self.to_string()).ok_or(ArithmeticError::Infinite)
            }
            whole => Ok(whole.to_big().into()),
        }
    }
}

/// Shows the number as Java does.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(_, number) => number.fmt(f),
            Self::Varint(number) => number.fmt(f),
            Self::Float(number) => f.write_str(&show_float(number)),
            Self::Double(number) => f.write_str(&show_float(number)),
            Self::Decimal(number) => number.fmt(f),
        }
    }
}

/// Shows the shortest digits that mean the number: with an exponent below 0.001 and from 10^7 on,
/// and with at least one digit after the point.
fn show_float(number: &impl fmt::LowerExp) -> String {
    let text = format!("{number:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text.replace("inf", "Infinity");
    };
    let unsigned = digits.trim_start_matches('-');
    let sign = &digits[..digits.len() - unsigned.len()];
    let unsigned = unsigned.replace('.', "");
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (whole, fraction) = match exponent {
        -3..0 => (
            "0".to_owned(),
            format!(
                "{unsigned:0>width$}",
                width = unsigned.len() + exponent.unsigned_abs() as usize - 1
            ),
        ),
        0..7 => {
            let padded = format!("{unsigned:0<width$}", width = exponent as usize + 2);
            let (whole, fraction) = padded.split_at(exponent as usize + 1);
            (whole.to_owned(), fraction.to_owned())
        }
        _ => {
            let padded = format!("{unsigned:0<2}");
            let (whole, fraction) = padded.split_at(1);
            (whole.to_owned(), format!("{fraction}E{exponent}"))
        }
    };
    format!("{sign}{whole}.{fraction}")
}

/// The type of the result of a calculation with these types. None if one is no type of numbers.
pub fn result_type(left: Native, right: Native) -> Option<Native> {
    let size = |it: Native| match it {
        Native::Float => Some(4),
        Native::Double => Some(8),
        Native::Varint | Native::Decimal => Some(usize::MAX),
        _ => integer_length(it),
    };
    let size = size(left)?.max(size(right)?);
    let is_float = |it| matches!(it, Native::Float | Native::Double | Native::Decimal);
    Some(match (is_float(left) || is_float(right), size) {
        (false, 1) => Native::Tinyint,
        (false, 2) => Native::Smallint,
        (false, 4) => Native::Int,
        (false, 8) => Native::Bigint,
        (false, _) => Native::Varint,
        (true, 4) => Native::Float,
        (true, 8) => Native::Double,
        (true, _) => Native::Decimal,
    })
}

/// The result of an operator. Integers wrap around.
pub fn calculate(
    left: &Number,
    operator: Arithmetic,
    right: &Number,
) -> Result<Number, ArithmeticError> {
    let to = result_type(left.native(), right.native()).ok_or(ArithmeticError::Range)?;
    match to {
        Native::Float | Native::Double => {
            let operand = |number: &Number| match to {
                // A double has digits enough to round the result as a float calculation does.
                Native::Float => number.to_f32().into(),
                _ => number.to_f64(),
            };
            calculate_float(operand(left), operator, operand(right)).cast(to)
        }
        Native::Varint => calculate_big(left.to_big(), operator, right.to_big()),
        Native::Decimal => {
            let (x, y) = (left.to_decimal()?, right.to_decimal()?);
            let result = match operator {
                Arithmetic::Add => x.add(&y),
                Arithmetic::Subtract => x.subtract(&y),
                Arithmetic::Multiply => x.multiply(&y),
                Arithmetic::Divide => x.divide(&y),
                Arithmetic::Remainder => x.remainder(&y),
            };
            result.map(Number::Decimal)
        }
        _ => calculate_small(left.to_i64(), operator, right.to_i64())
            .map(|number| Number::integer(to, number)),
    }
}

fn calculate_float(x: f64, operator: Arithmetic, y: f64) -> Number {
    Number::Double(match operator {
        Arithmetic::Add => x + y,
        Arithmetic::Subtract => x - y,
        Arithmetic::Multiply => x * y,
        Arithmetic::Divide => x / y,
        Arithmetic::Remainder => x % y,
    })
}

fn calculate_small(x: i64, operator: Arithmetic, y: i64) -> Result<i64, ArithmeticError> {
    Ok(match operator {
        Arithmetic::Add => x.wrapping_add(y),
        Arithmetic::Subtract => x.wrapping_sub(y),
        Arithmetic::Multiply => x.wrapping_mul(y),
        _ if y == 0 => return Err(ArithmeticError::Zero),
        Arithmetic::Divide => x.wrapping_div(y),
        Arithmetic::Remainder => x.wrapping_rem(y),
    })
}

fn calculate_big(x: BigInt, operator: Arithmetic, y: BigInt) -> Result<Number, ArithmeticError> {
    let result = match operator {
        Arithmetic::Add => x + y,
        Arithmetic::Subtract => x - y,
        Arithmetic::Multiply => x * y,
        _ if y.sign() == Sign::NoSign => return Err(ArithmeticError::BigZero),
        Arithmetic::Divide => x / y,
        Arithmetic::Remainder => x % y,
    };
    check_length(result).map(Number::Varint)
}

/// The sum and the average of numbers of one type.
#[derive(Debug, Clone)]
pub struct Sum {
    of_type: Native,
    count: u64,
    total: Total,
}

#[derive(Debug, Clone)]
enum Total {
    Small(i128),
    Varint(BigInt),
    Float(FloatTotal),
    Decimal(Decimal),
}

/// A sum of floating-point numbers that carries along what rounding takes from it, and one without
/// that, which tells infinity from NaN.
#[derive(Debug, Clone, Copy, Default)]
struct FloatTotal {
    sum: f64,
    lost: f64,
    simple: f64,
}

impl FloatTotal {
    fn add(&mut self, number: f64) {
        self.simple += number;
        let added = number - self.lost;
        let sum = self.sum + added;
        self.lost = (sum - self.sum) - added;
        self.sum = sum;
    }

    fn get(self) -> f64 {
        let sum = self.sum - self.lost;
        if sum.is_nan() && self.simple.is_infinite() { self.simple } else { sum }
    }
}

impl Sum {
    /// A sum of nothing yet. None if it is no type of numbers.
    pub fn new(of_type: Native) -> Option<Self> {
        let total = match of_type {
            Native::Varint => Total::Varint(BigInt::ZERO),
            Native::Float | Native::Double => Total::Float(FloatTotal::default()),
            Native::Decimal => Total::Decimal(BigInt::ZERO.into()),
            _ if of_type.is_number() => Total::Small(0),
            _ => return None,
        };
        Some(Self { of_type, count: 0, total })
    }

    /// Adds a value. The empty value counts as none.
    pub fn add(&mut self, value: &[u8]) -> Result<(), ArithmeticError> {
        let Some(number) = Number::decode(self.of_type, value) else { return Ok(()) };
        self.count += 1;
        match &mut self.total {
            Total::Small(total) => *total += i128::from(number.to_i64()),
            Total::Varint(total) => *total = check_length(std::mem::take(total) + number.to_big())?,
            Total::Float(total) => total.add(number.to_f64()),
            Total::Decimal(total) => *total = total.add(&number.to_decimal()?)?,
        }
        Ok(())
    }

    /// The sum, of the type of the numbers. Integers wrap around.
    pub fn sum(&self) -> Result<Number, ArithmeticError> {
        match &self.total {
            Total::Small(total) => Number::integer(Native::Bigint, *total as i64),
            Total::Varint(total) => Number::Varint(total.clone()),
            Total::Float(total) => Number::Double(total.get()),
            Total::Decimal(total) => Number::Decimal(total.clone()),
        }
        .cast(self.of_type)
    }

    /// The average, of the type of the numbers; zero for none.
    pub fn average(&self) -> Result<Number, ArithmeticError> {
        let count = self.count.max(1);
        match &self.total {
            Total::Small(total) => {
                Number::integer(Native::Bigint, (total / i128::from(count)) as i64)
            }
            Total::Varint(total) => Number::Varint(total / count),
            Total::Float(total) => Number::Double(total.get() / count as f64),
            Total::Decimal(total) => Number::Decimal(total.share(count)?),
        }
        .cast(self.of_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Number {
        Number::Decimal(Decimal::parse(text).unwrap())
    }

    fn tinyint(number: i64) -> Number {
        Number::integer(Native::Tinyint, number)
    }

    fn smallint(number: i64) -> Number {
        Number::integer(Native::Smallint, number)
    }

    fn int(number: i64) -> Number {
        Number::integer(Native::Int, number)
    }

    fn bigint(number: i64) -> Number {
        Number::integer(Native::Bigint, number)
    }

    /// One number of each type.
    fn numbers() -> [Number; 8] {
        [
            tinyint(1),
            smallint(2),
            int(3),
            bigint(4),
            Number::Float(5.5),
            Number::Double(6.5),
            Number::Varint(7.into()),
            decimal("8.5"),
        ]
    }

    fn all_with(operator: Arithmetic, right: &Number) -> String {
        let results = numbers().map(|left| calculate(&left, operator, right).unwrap().to_string());
        results.join(" ")
    }

    #[test]
    fn the_wider_type_gives_the_result_its_type() {
        let natives = |right: Native| {
            numbers().map(|left| result_type(left.native(), right).unwrap().name()).join(" ")
        };
        assert_eq!(
            natives(Native::Tinyint),
            "tinyint smallint int bigint float double varint decimal"
        );
        assert_eq!(
            natives(Native::Counter),
            "bigint bigint bigint bigint double double varint decimal"
        );
        assert_eq!(natives(Native::Float), "float float float double float double decimal decimal");
        assert_eq!(
            natives(Native::Varint),
            "varint varint varint varint decimal decimal varint decimal"
        );
        assert_eq!(result_type(Native::Int, Native::Text), None);
    }

    #[test]
    fn numbers_of_different_types_calculate() {
        let [_, two, three, _, float, double, varint, tenths] = numbers();
        assert_eq!(all_with(Arithmetic::Add, &float), "6.5 7.5 8.5 9.5 11.0 12.0 12.5 14.0");
        assert_eq!(all_with(Arithmetic::Subtract, &two), "-1 0 1 2 3.5 4.5 5 6.5");
        assert_eq!(
            all_with(Arithmetic::Multiply, &double),
            "6.5 13.0 19.5 26.0 35.75 42.25 45.5 55.25"
        );
        assert_eq!(
            all_with(Arithmetic::Divide, &three),
            "0 0 1 1 1.8333334 2.1666666666666665 2 2.83333333333333333333333333333333"
        );
        assert_eq!(all_with(Arithmetic::Remainder, &varint), "1 2 3 4 5.5 6.5 0 1.5");
        assert_eq!(all_with(Arithmetic::Remainder, &tenths), "1.0 2.0 3.0 4.0 5.5 6.5 7.0 0.0");
    }

    #[test]
    fn integers_wrap_around() {
        let add = |a: Number, b: Number| calculate(&a, Arithmetic::Add, &b).unwrap();
        assert_eq!(add(int(i32::MAX.into()), tinyint(1)), int(i32::MIN.into()));
        assert_eq!(add(tinyint(127), tinyint(1)), tinyint(-128));
        let least = bigint(i64::MIN);
        assert_eq!(calculate(&least, Arithmetic::Divide, &int(-1)).unwrap(), least);
        assert_eq!(least.negated(), least);
    }

    #[test]
    fn division_by_zero_is_an_error_but_for_floats() {
        let divide = |left: &Number, zero: Number| {
            calculate(left, Arithmetic::Divide, &zero)
                .map_or_else(|it| it.to_string(), |it| it.to_string())
        };
        let results = numbers().map(|left| divide(&left, tinyint(0)));
        let (small, big) = ("/ by zero", "BigInteger divide by zero");
        assert_eq!(results, [small, small, small, small, "Infinity", "Infinity", big, big]);
        let nan = calculate(&decimal("1"), Arithmetic::Add, &Number::Double(f64::NAN));
        assert_eq!(nan, Err(ArithmeticError::NaN));
        let infinite = calculate(&decimal("1"), Arithmetic::Add, &Number::Float(f32::INFINITY));
        assert_eq!(infinite, Err(ArithmeticError::Infinite));
    }

    #[test]
    fn casts_are_those_of_java() {
        let cast = |number: &Number, to| number.cast(to).unwrap().to_string();
        let (tiny, big) = (Native::Tinyint, Native::Bigint);
        assert_eq!(cast(&int(300), tiny), "44");
        assert_eq!(cast(&Number::Double(300.7), tiny), "44");
        assert_eq!(cast(&Number::Double(1e30), Native::Int), "2147483647");
        assert_eq!(cast(&Number::Double(1e30), tiny), "-1");
        assert_eq!(cast(&Number::Float(f32::NAN), big), "0");
        assert_eq!(cast(&Number::Float(5.2), Native::Double), "5.199999809265137");
        assert_eq!(cast(&Number::Float(5.2), Native::Decimal), "5.2");
        assert_eq!(cast(&bigint(i64::MAX), Native::Decimal), "9223372036854775807");
        assert_eq!(cast(&decimal("-6.9"), Native::Varint), "-6");
        assert_eq!(cast(&decimal("6.3"), Native::Double), "6.3");
        assert_eq!(cast(&decimal("1e400"), Native::Float), "Infinity");
        let two_to_64 = Number::Varint(BigInt::from(1u8) << 64);
        assert_eq!(cast(&two_to_64, big), "0");
        assert_eq!(cast(&Number::Varint(BigInt::from(i64::MIN)), big), i64::MIN.to_string());
    }

    #[test]
    fn floats_are_shown_as_in_java() {
        for (number, shown) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (123_123.123_123, "123123.123123"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (1.25e-5, "1.25E-5"),
            (0.001, "0.001"),
            (-0.0125, "-0.0125"),
            (100.0, "100.0"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(Number::Double(number).to_string(), shown);
        }
        assert_eq!(Number::Float(123.123).to_string(), "123.123");
    }

    #[test]
    fn sums_and_averages_have_the_type_of_the_numbers() {
        let total = |numbers: &[Number]| {
            let mut sum = Sum::new(numbers[0].native()).unwrap();
            sum.add(b"").unwrap();
            for number in numbers {
                sum.add(&number.encode()).unwrap();
            }
            (sum.sum().unwrap().to_string(), sum.average().unwrap().to_string())
        };
        let text = |sum: &str, average: &str| (sum.to_owned(), average.to_owned());
        assert_eq!(total(&[int(1), int(2)]), text("3", "1"));
        let most = int(i32::MAX.into());
        assert_eq!(total(&[most.clone(), most]), text("-2", "2147483647"));
        assert_eq!(total(&[0.1, 0.2, 0.3].map(Number::Double)), text("0.6", "0.19999999999999998"));
        assert_eq!(total(&[f32::INFINITY, 1.0].map(Number::Float)), text("Infinity", "Infinity"));
        assert_eq!(total(&[decimal("1.0"), decimal("2.5")]), text("3.5", "1.8"));
        assert_eq!(total(&[7, 8].map(|it| Number::Varint(it.into()))), text("15", "7"));
        let none = Sum::new(Native::Decimal).unwrap();
        assert_eq!(none.average().unwrap().to_string(), "0");
        assert!(Sum::new(Native::Text).is_none());
    }
}
