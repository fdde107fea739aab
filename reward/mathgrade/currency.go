package mathgrade

import "strings"

// currencies are the signs that stand with an amount, each under the name of its kind.
var currencies = []struct{ sign, name string }{{`\$`, "dollar"}, {"€", "euro"}, {`\euro`, "euro"}, {"£", "pound"}, {`\pounds`, "pound"}, {"¥", "yen"}, {"₹", "rupee"}}

// currencyOf is the currency whose sign stands in a text; "" = none, or several. A bare dollar sign may be a mark of LaTeX.
func currencyOf(s string) string {
	found := ""
	for _, c := range currencies {
		if strings.Contains(s, c.sign) && c.name != found {
			if found != "" {
				return ""
			}
			found = c.name
		}
	}
	return found
}

// otherCurrency reports whether two amounts are told to be of different currencies.
func otherCurrency(truth, answer string) bool {
	t, a := currencyOf(truth), currencyOf(answer)
	return t != "" && a != "" && t != a
}
