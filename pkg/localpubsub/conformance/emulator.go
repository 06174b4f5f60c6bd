package conformance

// Emulator lists what the official emulator does otherwise than documented.
func Emulator() map[string]Departure {
	return map[string]Departure{}
}
