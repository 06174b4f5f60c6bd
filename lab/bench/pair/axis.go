package pair

import "math"

// axis puts values on a line of the picture.
type axis struct {
	ticks []float64 // the first one is the begin of the axis, the last one its end
	low   float64   // smaller values have no place
	at    func(float64) float64
}

// linear is an axis from 0 to a round number that is not below top.
func linear(top, from, to float64) axis {
	step := round(max(top, 1) / 6)
	a := axis{ticks: []float64{0}}
	for last := 0.; last < top; {
		last += step
		a.ticks = append(a.ticks, last)
	}
	end := max(a.ticks[len(a.ticks)-1], step)
	a.at = func(v float64) float64 { return from + (to-from)*v/end }
	return a
}

// round is the smallest of 1, 2, 5, 10, 20, … that is not below v.
func round(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, of := range []float64{1, 2, 5} {
		if of*power >= v {
			return of * power
		}
	}
	return 10 * power
}

// logarithmic is an axis from one power of ten to another.
func logarithmic(low, high, from, to float64) axis {
	a := axis{low: low}
	for v := low; v <= high; v *= 10 {
		a.ticks = append(a.ticks, v)
	}
	a.at = func(v float64) float64 { return from + (to-from)*math.Log(v/low)/math.Log(high/low) }
	return a
}
