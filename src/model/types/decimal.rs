//! Decimal numbers of any length.
//!
//! ```text
//! decimal  = i32 scale, unscaled number in two's complement: unscaled / 10^scale
//! ```

use super::{ArithmeticError, MAX_NUMBER_BYTES};
use num_bigint::{BigInt, Sign};
use std::cmp::Ordering;
use std::fmt;

/// Most digits of a number: those of [`MAX_NUMBER_BYTES`].
const MAX_DIGITS: i64 = MAX_NUMBER_BYTES as i64 * 2408 / 1000;

/// Least number of digits, and of decimal places, that a quotient gets; and most decimal places.
const QUOTIENT_DIGITS: i64 = 32;
const MAX_QUOTIENT_SCALE: i64 = 1000;

/// A decimal number. Numbers that differ only in their scale, as 1.0 and 1.00, are two values with
/// the same place in the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    unscaled: BigInt,
    scale: i32,
}

/// Rounding of a quotient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounding {
    HalfUp,
    HalfEven,
}

impl From<BigInt> for Decimal {
    fn from(unscaled: BigInt) -> Self {
        Self { unscaled, scale: 0 }
    }
}

impl Decimal {
    /// Reads the bytes of a decimal.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (scale, unscaled) = value.split_first_chunk()?;
        let unscaled = BigInt::from_signed_bytes_be(unscaled);
        Some(Self { unscaled, scale: i32::from_be_bytes(*scale) })
    }

    /// The bytes of the decimal.
    pub fn encode(&self) -> Vec<u8> {
        [&self.scale.to_be_bytes()[..], &self.unscaled.to_signed_bytes_be()].concat()
    }

    /// Reads digits with a sign, a point and an exponent, each of which may be left out.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let unsigned = number.strip_prefix(['+', '-']).unwrap_or(number);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits = [whole, fraction].concat();
        let unscaled = parse_digits(&digits)?;
        let unscaled = if number.starts_with('-') { -unscaled } else { unscaled };
        let scale = (fraction.len() as i64).checked_sub(exponent)?;
        Self::new(unscaled, scale).ok()
    }

    fn new(unscaled: BigInt, scale: i64) -> Result<Self, ArithmeticError> {
        let scale = i32::try_from(scale).map_err(|_| ArithmeticError::Range)?;
        check_length(unscaled).map(|unscaled| Self { unscaled, scale })
    }

    /// The logarithm of the absolute value, to a sixth. Not for zero.
    fn log10(&self) -> f64 {
        (self.unscaled.bits() as f64 - 0.5) * std::f64::consts::LOG10_2 - f64::from(self.scale)
    }

    /// The order by value. Does not write out the zeros of large exponents.
    pub fn compare(&self, other: &Self) -> Ordering {
        let sign = self.unscaled.sign();
        if sign != other.unscaled.sign() || sign == Sign::NoSign {
            return sign.cmp(&other.unscaled.sign());
        }
        let (x, y) = (self.log10(), other.log10());
        if (x - y).abs() > 1.0 {
            let order = x.total_cmp(&y);
            return if sign == Sign::Minus { order.reverse() } else { order };
        }
        // Of numbers so close the scales differ by no more than the numbers of digits do.
        let shift = i64::from(self.scale) - i64::from(other.scale);
        let power = power_of_ten(shift.unsigned_abs());
        if shift > 0 {
            self.unscaled.cmp(&(&other.unscaled * power))
        } else {
            (&self.unscaled * power).cmp(&other.unscaled)
        }
    }

    /// Both unscaled numbers at the greater scale.
    fn aligned(&self, other: &Self) -> Result<(BigInt, BigInt, i64), ArithmeticError> {
        let scale = i64::from(self.scale.max(other.scale));
        let at_scale = |it: &Self| shifted(&it.unscaled, scale - i64::from(it.scale));
        Ok((at_scale(self)?, at_scale(other)?, scale))
    }

    pub(super) fn add(&self, other: &Self) -> Result<Self, ArithmeticError> {
        let (a, b, scale) = self.aligned(other)?;
        Self::new(a + b, scale)
    }

    pub(super) fn subtract(&self, other: &Self) -> Result<Self, ArithmeticError> {
        let (a, b, scale) = self.aligned(other)?;
        Self::new(a - b, scale)
    }

    pub(super) fn multiply(&self, other: &Self) -> Result<Self, ArithmeticError> {
        let scale = i64::from(self.scale) + i64::from(other.scale);
        Self::new(&self.unscaled * &other.unscaled, scale)
    }

    pub(super) fn remainder(&self, other: &Self) -> Result<Self, ArithmeticError> {
        let (a, b, scale) = self.aligned(other)?;
        if b.sign() == Sign::NoSign {
            return Err(ArithmeticError::BigZero);
        }
        Self::new(a % b, scale)
    }

    /// The quotient, with at least 32 significant digits and 32 decimal places as far as it has
    /// them.
    pub(super) fn divide(&self, other: &Self) -> Result<Self, ArithmeticError> {
        let integer_digits = |it: &Self| digits_of(&it.unscaled) - i64::from(it.scale);
        let first = integer_digits(self) - integer_digits(other);
        let scale = (QUOTIENT_DIGITS - first)
            .max(self.scale.into())
            .max(other.scale.into())
            .clamp(QUOTIENT_DIGITS, MAX_QUOTIENT_SCALE);
        self.divide_to(other, scale, Rounding::HalfUp).map(Self::without_zeros)
    }

    /// The share of each of so many, at the same scale.
    pub(super) fn share(&self, count: u64) -> Result<Self, ArithmeticError> {
        let count = Self::from(BigInt::from(count));
        self.divide_to(&count, self.scale.into(), Rounding::HalfEven)
    }

    fn divide_to(
        &self,
        other: &Self,
        scale: i64,
        rounding: Rounding,
    ) -> Result<Self, ArithmeticError> {
        if other.unscaled.sign() == Sign::NoSign {
            return Err(ArithmeticError::BigZero);
        }
        let shift = scale - i64::from(self.scale) + i64::from(other.scale);
        let dividend = shifted(&self.unscaled, shift.max(0))?;
        let divisor = shifted(&other.unscaled, (-shift).max(0))?;
        let (quotient, remainder) = (&dividend / &divisor, &dividend % &divisor);
        let half = (remainder.magnitude() * 2u32).cmp(divisor.magnitude());
        let rounds_away =
            half.is_gt() || half.is_eq() && (rounding == Rounding::HalfUp || quotient.bit(0));
        let is_negative = dividend.sign() != divisor.sign();
        let step = i8::from(rounds_away) * if is_negative { -1 } else { 1 };
        Self::new(quotient + step, scale)
    }

    fn without_zeros(self) -> Self {
        let digits = self.unscaled.to_string();
        let zeros = (digits.len() - digits.trim_end_matches('0').len()) as i64;
        match Self::new(&self.unscaled / power_of_ten(zeros as u64), i64::from(self.scale) - zeros)
        {
            _ if self.unscaled.sign() == Sign::NoSign => Self::from(BigInt::ZERO),
            shorter => shorter.unwrap_or(self),
        }
    }

    pub(super) fn negated(&self) -> Self {
        Self { unscaled: -&self.unscaled, scale: self.scale }
    }

    /// The number without its fraction.
    pub(super) fn truncated(&self) -> Result<BigInt, ArithmeticError> {
        let scale = i64::from(self.scale);
        if scale <= 0 {
            return shifted(&self.unscaled, -scale);
        }
        if self.unscaled.sign() == Sign::NoSign || self.log10() < -1.0 {
            return Ok(BigInt::ZERO);
        }
        Ok(&self.unscaled / power_of_ten(scale as u64))
    }

    /// The lowest 64 bits of the number without its fraction.
    pub(super) fn low_bits(&self) -> i64 {
        // Each factor of ten is one of two.
        if self.scale <= -64 { 0 } else { self.truncated().map_or(0, |it| low_bits(&it)) }
    }

    pub(super) fn to_scientific(&self) -> String {
        format!("{}e{}", self.unscaled, -i64::from(self.scale))
    }
}

/// Reads digits without a sign.
fn parse_digits(digits: &str) -> Option<BigInt> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let fits = !digits.is_empty() && digits.len() as i64 <= MAX_DIGITS;
    if is_number && fits { digits.parse().ok() } else { None }
}

/// Reads digits, with a sign before them if need be.
pub(super) fn parse_integer(text: &str) -> Option<BigInt> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number = check_length(parse_digits(digits)?).ok()?;
    Some(if text.starts_with('-') { -number } else { number })
}

/// The number if it is not longer than numbers may be.
pub(super) fn check_length(number: BigInt) -> Result<BigInt, ArithmeticError> {
    // A decimal has its scale before it.
    let fits = number.bits() < (MAX_NUMBER_BYTES as u64 - 4) * 8;
    if fits { Ok(number) } else { Err(ArithmeticError::Range) }
}

/// The lowest 64 bits in two's complement.
pub(super) fn low_bits(number: &BigInt) -> i64 {
    let low = number.iter_u64_digits().next().unwrap_or(0) as i64;
    if number.sign() == Sign::Minus { low.wrapping_neg() } else { low }
}

fn digits_of(number: &BigInt) -> i64 {
    number.magnitude().to_string().len() as i64
}

fn power_of_ten(exponent: u64) -> BigInt {
    BigInt::from(10).pow(exponent as u32)
}

/// The number with so many zeros after it.
fn shifted(number: &BigInt, zeros: i64) -> Result<BigInt, ArithmeticError> {
    match zeros {
        0 => Ok(number.clone()),
        _ if number.sign() == Sign::NoSign => Ok(BigInt::ZERO),
        _ if zeros > MAX_DIGITS => Err(ArithmeticError::Range),
        _ => Ok(number * power_of_ten(zeros as u64)),
    }
}

/// Shows the number with all its digits: with an exponent if zeros would have to stand before the
/// decimal point, or more than five after it.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.unscaled.sign() == Sign::Minus { "-" } else { "" };
        let digits = self.unscaled.magnitude().to_string();
        let scale = i64::from(self.scale);
        let exponent = digits.len() as i64 - 1 - scale;
        if scale == 0 {
            return write!(f, "{sign}{digits}");
        }
        if scale < 0 || exponent < -6 {
            let (first, others) = digits.split_at(1);
            let point = if others.is_empty() { "" } else { "." };
            let plus = if exponent < 0 { "" } else { "+" };
            return write!(f, "{sign}{first}{point}{others}E{plus}{exponent}");
        }
        // A width of a format ends at 65,535.
        let zeros = "0".repeat((scale as usize + 1).saturating_sub(digits.len()));
        let padded = format!("{zeros}{digits}");
        let (whole, fraction) = padded.split_at(padded.len() - scale as usize);
        write!(f, "{sign}{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn all_digits_are_shown_however_many_there_are() {
        let text = format!("0.{}", "1".repeat(70_000));
        assert_eq!(decimal(&text).to_string(), text);
    }

    #[test]
    fn decimals_are_shown_as_in_java() {
        for (text, shown) in [
            ("0", "0"),
            ("0.00", "0.00"),
            ("-1.23E-12", "-1.23E-12"),
            ("123123.123123", "123123.123123"),
            ("+5", "5"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1e3", "1E+3"),
            ("12e3", "1.2E+4"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1E-7"),
            ("1e2147483647", "1E+2147483647"),
        ] {
            assert_eq!(decimal(text).to_string(), shown, "{text}");
        }
        for text in ["", ".", "-", "e5", "1e", "0x1", "1.2.3", "1e2147483649", "--1", "1 ", "NaN"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
        assert_eq!(Decimal::parse(&"9".repeat(200_000)), None);
    }

    #[test]
    fn decimals_are_a_scale_and_a_number() {
        assert_eq!(decimal("1.28").encode(), [0, 0, 0, 2, 0, 0x80]);
        assert_eq!(decimal("-1e3").encode(), [0xff, 0xff, 0xff, 0xfd, 0xff]);
        assert_eq!(Decimal::decode(&[0, 0, 0, 2, 0, 0x80]).unwrap(), decimal("1.28"));
        assert_eq!(Decimal::decode(&[0, 0, 0]), None);
    }

    #[test]
    fn quotients_have_32_digits() {
        let divide = |a: &str, b: &str| decimal(a).divide(&decimal(b)).unwrap().to_string();
        assert_eq!(divide("8.5", "3"), "2.83333333333333333333333333333333");
        assert_eq!(divide("1", "8.5"), "0.11764705882352941176470588235294");
        assert_eq!(divide("5.5", "8.5"), "0.64705882352941176470588235294118");
        assert_eq!(divide("10000", "3"), "3333.33333333333333333333333333333333");
        assert_eq!(divide("8.5", "200000000000000000000000000000000000"), "4.25E-35");
        assert_eq!(divide("-8.5", "-8.5"), "1");
        assert_eq!(divide("0", "7"), "0");
        assert_eq!(decimal("1").divide(&decimal("0.0")), Err(ArithmeticError::BigZero));
        let halves = |text: &str, count| decimal(text).share(count).unwrap().to_string();
        assert_eq!([halves("3.0", 4), halves("2.5", 2), halves("-3", 2)], ["0.8", "1.2", "-2"]);
    }

    #[test]
    fn huge_exponents_cost_nothing() {
        let low = "19866597869857659876855e-1000000000";
        let high = "19866597869857659876855e1000000000";
        let ordered =
            [&format!("-{high}"), &format!("-{low}"), "0e1000000000", low, "1", high].map(decimal);
        for (at, a) in ordered.iter().enumerate() {
            for (other, b) in ordered.iter().enumerate() {
                assert_eq!(a.compare(b), at.cmp(&other), "{a} {b}");
            }
        }
        assert!(decimal(low).add(&decimal(high)).is_err());
        assert!(decimal(high).truncated().is_err());
        assert_eq!(decimal(high).low_bits(), 0);
        assert_eq!(decimal(low).truncated(), Ok(BigInt::ZERO));
        assert!(decimal("1e2000000000").multiply(&decimal("1e2000000000")).is_err());
        assert!(decimal("1").divide(&decimal(high)).is_err());
    }

    proptest! {
        #[test]
        fn close_decimals_compare_by_value(
            a in -100_000i64..100_000, b in -100_000i64..100_000, x in -6i32..6, y in -6i32..6,
        ) {
            let value = |number: i64, scale: i32| {
                let millionths = i128::from(number) * 10i128.pow((6 - scale) as u32);
                (Decimal { unscaled: number.into(), scale }, millionths)
            };
            let ((a, exact_a), (b, exact_b)) = (value(a, x), value(b, y));
            prop_assert_eq!(a.compare(&b), exact_a.cmp(&exact_b));
            prop_assert_eq!(&Decimal::parse(&a.to_string()).unwrap(), &a);
            let sum = a.add(&b).unwrap();
            prop_assert!(sum.subtract(&b).unwrap().compare(&a).is_eq());
        }
    }
}
