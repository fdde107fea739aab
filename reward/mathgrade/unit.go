package mathgrade

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// scale is a unit: what it measures, and how much of the base unit of that it is.
type scale struct {
	of     string
	factor *big.Rat
}

// units is the table of units whose amounts are compared; every name is in small letters and without the plural's s.
func units(name string) (scale, bool) {
	for _, u := range []struct{ of, names, factor string }{
		{"length", "mm millimeter millimetre", "1/1000"},
		{"length", "cm centimeter centimetre", "1/100"},
		{"length", "m meter metre", "1"},
		{"length", "km kilometer kilometre", "1000"},
		{"length", "in inch inche", "0.0254"},
		{"length", "ft foot feet", "0.3048"},
		{"length", "yd yard", "0.9144"},
		{"length", "mi mile", "1609.344"},
		{"mass", "mg milligram", "1/1000"},
		{"mass", "g gram", "1"},
		{"mass", "kg kilogram", "1000"},
		{"mass", "lb pound", "453.59237"},
		{"mass", "oz ounce", "28.349523125"},
		{"time", "sec second s", "1"},
		{"time", "min minute", "60"},
		{"time", "h hr hour", "3600"},
		{"time", "day", "86400"},
		{"time", "week", "604800"},
		{"volume", "ml milliliter millilitre", "1/1000"},
		{"volume", "l liter litre", "1"},
		{"dollars", "cent", "1/100"},
		{"dollars", "dollar usd buck", "1"},
		{"euros", "euro eur", "1"},
		{"angle", "radian rad", "1"},
		{"months", "month", "1"},
		{"months", "year yr", "12"},
	} {
		for n := range strings.FieldsSeq(u.names) {
			if n == name {
				f, _ := new(big.Rat).SetString(u.factor)
				return scale{u.of, f}, true
			}
		}
	}
	return scale{}, false
}

// isUnit reports whether a run of letters is a unit rather than variables side by side.
func isUnit(run string) bool {
	name := singular(strings.ToLower(run))
	if _, ok := units(name); ok {
		return true
	}
	switch name {
	case "sq", "per", "mph", "kph", "kmh", "unit", "cu", "gal", "pt", "qt", "square", "cubic", "people", "men", "way", "time", "egg", "dozen", "hz":
		return true
	}
	return false
}

func singular(name string) string {
	if len(name) > 2 && strings.HasSuffix(name, "s") && !strings.HasSuffix(name, "ss") {
		return name[:len(name)-1]
	}
	return name
}

// unitName writes a unit in one form: small letters, no plural, square and cubic as powers.
func unitName(s string) string {
	s = strings.ToLower(s)
	for _, cut := range []string{"\\", "{", "}", "(", ")", ".", ",", "~", "$", "-"} {
		s = strings.ReplaceAll(s, cut, " ")
	}
	var out []string
	power := ""
	for w := range strings.FieldsSeq(strings.ReplaceAll(s, "/", " / ")) {
		switch w = singular(w); w {
		case "sq", "square":
			power = "^2"
			continue
		case "cubic", "cu":
			power = "^3"
			continue
		case "per":
			w = "/"
		}
		if power != "" && w != "/" && w != "unit" {
			w += power
			power = ""
		}
		out = append(out, w)
	}
	if power != "" && len(out) == 0 {
		out = []string{"unit"}
	}
	name := strings.Join(out, " ")
	return strings.ReplaceAll(name, " ^", "^")
}

// unitScale is what a unit in unitName's form measures, if the table has all that it is made of: cm^2, mile / hour.
func unitScale(name string) (scale, bool) {
	factor, dims := big.NewRat(1, 1), map[string]int{}
	sign := 1
	for w := range strings.FieldsSeq(spelled(name)) {
		switch w {
		case "/":
			sign = -1
			continue
		case "*":
			continue
		}
		base, power, raised := strings.Cut(w, "^")
		u, ok := units(singular(base))
		n := 1
		if raised {
			v, err := strconv.Atoi(power)
			if err != nil || v == 0 || v < -3 || v > 3 {
				return scale{}, false
			}
			n = v
		}
		if !ok {
			return scale{}, false
		}
		n, sign = n*sign, 1
		dims[u.of] += n
		for ; n > 0; n-- {
			factor.Mul(factor, u.factor)
		}
		for ; n < 0; n++ {
			factor.Quo(factor, u.factor)
		}
	}
	var of []string
	for d, n := range dims {
		of = append(of, d+"^"+strconv.Itoa(n))
	}
	slices.Sort(of)
	return scale{strings.Join(of, " "), factor}, len(of) > 0
}

// spelled writes the short names of speeds in full.
func spelled(name string) string {
	switch name {
	case "mph":
		return "mile / hour"
	case "kph", "kmh":
		return "km / hour"
	}
	return name
}

// inRadians reports whether a unit is that of an angle that is not in degrees.
func inRadians(unit string) bool { return singular(strings.ToLower(unit)) == "radian" || unit == "rad" }
