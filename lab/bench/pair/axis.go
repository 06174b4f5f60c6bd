package pair

import "math"

// axis gives each value its place on a line of the picture.
type axis struct {
	ticks []float64 // the first tick is the beginning of the axis, the last one its end
	low   float64   // smaller values have no place
	at    func(float64) float64
}

// linear returns an axis from 0 to a round number that is not below top. from and to are the ends
// of the axis in the picture.
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

// round returns the smallest number of 1, 2, 5, 10, 20, … that is not below v.
func round(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, of := range []float64{1, 2, 5} {
		if of*power >= v {
			return of * power
		}
	}
	return 10 * power
}

// logarithmic returns an axis from low to high, which are powers of ten. from and to are the ends
// of the axis in the picture.
func logarithmic(low, high, from, to float64) axis {
	a := axis{low: low}
	for v := low; v <= high; v *= 10 {
		a.ticks = append(a.ticks, v)
	}
	a.at = func(v float64) float64 { return from + (to-from)*math.Log(v/low)/math.Log(high/low) }
	return a
}
