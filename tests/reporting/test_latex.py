from fairtopk.reporting.tables import SPECIAL, latex_table


def test_a_table_has_rules_of_booktabs_and_numbers_as_formulas() -> None:
    found = latex_table(
        ["metric", "a_1", "p"], [["gap@5", "-0.25", "1e-05"], ["ndcg", "0.5", "nan"]]
    )
    assert found == (
        r"""\begin{tabular}{lrr}
\toprule
metric & a\_1 & p \\
\midrule
gap@5 & $-0.25$ & $1 \times 10^{-5}$ \\
ndcg & $0.5$ & -- \\
\bottomrule
\end{tabular}
"""
    )


def test_every_sign_that_latex_reads_is_escaped() -> None:
    assert "a&b%c$d#e_f{g}".translate(SPECIAL) == r"a\&b\%c\$d\#e\_f\{g\}"
    assert "~^\\".translate(SPECIAL) == r"\textasciitilde{}\textasciicircum{}\textbackslash{}"
