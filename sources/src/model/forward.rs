//! A macro that delegates methods to a wrapped value.

/// Implements methods by calling the methods of the same name on a wrapped value. The first line of
/// the input selects the value, for example `|this| this.source;`.
macro_rules! forward {
    (|$this:ident| $to:expr; $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $returned:ty)?;)*) => {
        $($crate::model::forward::forward!(@method $this, $to, $name($($arg: $type),*) $(-> $returned)?);)*
    };
    (@method $this:ident, $to:expr, $name:ident($($arg:ident: $type:ty),*) $(-> $returned:ty)?) => {
        fn $name(&self, $($arg: $type),*) $(-> $returned)? {
            let $this = self;
            $to.$name($($arg),*)
        }
    };
}
pub(crate) use forward;
