package telemetry

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

type check func(value string) (want string, ok bool)

// variables are the OTEL_* variables that [Setup] checks, by the signal that reads them, with the check of each. The SDK
// takes a default for a value that it does not understand, and writes a line without the variable's name, or none. It
// panics at a negative OTEL_BSP_MAX_QUEUE_SIZE, and it never sleeps at an OTEL_BSP_SCHEDULE_DELAY of 0.
var variables = map[string]map[string]check{
	"TRACES": {
		"OTEL_BSP_MAX_QUEUE_SIZE":        atLeast(1),
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": atLeast(1),
		"OTEL_BSP_SCHEDULE_DELAY":        atLeast(1),
		"OTEL_BSP_EXPORT_TIMEOUT":        atLeast(0),

		"OTEL_ATTRIBUTE_COUNT_LIMIT":             atLeast(-1),
		"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT":      atLeast(-1),
		"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT":        atLeast(-1),
		"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": atLeast(-1),
		"OTEL_SPAN_EVENT_COUNT_LIMIT":            atLeast(-1),
		"OTEL_SPAN_LINK_COUNT_LIMIT":             atLeast(-1),
		"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT":       atLeast(-1),
		"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT":        atLeast(-1),

		"OTEL_TRACES_SAMPLER": inAnyCase(oneOf("always_on", "always_off", "traceidratio",
			"parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")),
		"OTEL_TRACES_SAMPLER_ARG": samplerArg,
	},
	"METRICS": {
		"OTEL_METRIC_EXPORT_INTERVAL": atLeast(1),
		"OTEL_METRIC_EXPORT_TIMEOUT":  atLeast(1),

		"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": inAnyCase(oneOf("cumulative", "delta", "lowmemory")),
		"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": inAnyCase(
			oneOf("explicit_bucket_histogram", "base2_exponential_bucket_histogram")),
	},
}

// ofExporters are the ends of the names of the variables that exist for both signals together and for each of them.
var ofExporters = map[string]check{
	"ENDPOINT":           endpoint,
	"HEADERS":            headers,
	"TIMEOUT":            atLeast(0), // 0 is no limit
	"COMPRESSION":        oneOf("gzip", "none"),
	"INSECURE":           inAnyCase(oneOf("true", "false")),
	"CERTIFICATE":        file,
	"CLIENT_CERTIFICATE": file,
	"CLIENT_KEY":         file,
}

// checkEnvironment returns an error that names the first variable of the signal, in the order of their names, that the SDK
// could not use as it is. The error does not show the value, because a header may hold a password.
func checkEnvironment(signal string) error {
	checks := maps.Clone(variables[signal])
	for end, check := range ofExporters {
		checks["OTEL_EXPORTER_OTLP_"+end] = check
		checks["OTEL_EXPORTER_OTLP_"+signal+"_"+end] = check
	}
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		value := os.Getenv(name)
		if strings.HasPrefix(name, "OTEL_EXPORTER_OTLP_") || strings.HasPrefix(name, "OTEL_TRACES_SAMPLER") {
			value = strings.TrimSpace(value) // as the SDK does with these
		}
		if value == "" {
			continue
		}
		if want, ok := checks[name](value); !ok {
			return fmt.Errorf("%s must be %s", name, want)
		}
	}
	return nil
}

func atLeast(least int) check {
	return func(value string) (string, bool) {
		n, err := strconv.Atoi(value)
		return fmt.Sprintf("a whole number, %d at least; times are in milliseconds", least), err == nil && n >= least
	}
}

func oneOf(values ...string) check {
	return func(value string) (string, bool) {
		return "one of " + strings.Join(values, ", "), slices.Contains(values, value)
	}
}

func inAnyCase(c check) check {
	return func(value string) (string, bool) { return c(strings.ToLower(value)) }
}

// samplerArg checks the argument of a sampler that has one.
func samplerArg(value string) (string, bool) {
	const want = "a number from 0 to 1, the share of traces that are sampled"
	if !strings.HasSuffix(strings.ToLower(strings.TrimSpace(os.Getenv("OTEL_TRACES_SAMPLER"))), "traceidratio") {
		return want, true
	}
	share, err := strconv.ParseFloat(value, 64)
	return want, err == nil && share >= 0 && share <= 1
}

// endpoint accepts the URLs of OpenTelemetry, a host with or without a port, and the forms of gRPC for its other resolvers.
func endpoint(value string) (string, bool) {
	const want = "a URL such as http://collector:4317, or https:// for TLS"
	u, err := url.Parse(value)
	if err != nil {
		return want, false
	}
	switch u.Scheme {
	case "http", "https":
		return want, u.Host != ""
	case "unix", "unix-abstract", "dns", "passthrough":
		return want, true
	case "":
		return want, u.Host != "" || !strings.Contains(u.Path, "/")
	}
	_, err = strconv.ParseUint(u.Opaque, 10, 16)
	return want, err == nil
}

// headers accepts pairs key=value, separated by commas, whose values are encoded as in a URL. A comma may stand at the end.
func headers(value string) (string, bool) {
	const want = "pairs key=value, separated by commas, with values encoded as in a URL"
	for pair := range strings.SplitSeq(strings.TrimSuffix(value, ","), ",") {
		key, text, found := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(text); !found || err != nil || !httpguts.ValidHeaderFieldName(strings.TrimSpace(key)) {
			return want, false
		}
	}
	return want, true
}

func file(value string) (string, bool) {
	_, err := os.ReadFile(value) //nolint:gosec // the operator names the file
	return "the name of a file that this process can read", err == nil
}
