//! What the types make impossible: programs that must not compile.

#[test]
fn mistakes_that_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
