package telemetry_test

import (
	"strings"
	"testing"

	"example.com/lockstep/internal/telemetry"
)

const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

// TestWrongVariablesAreNamed: for each of these values, OpenTelemetry would take a default, send nothing or panic. No
// line of the log would name the variable. A sampler's default is every trace.
func TestWrongVariablesAreNamed(t *testing.T) {
	for _, tc := range []struct{ name, value string }{
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"},
		{"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json"},
		{"OTEL_RESOURCE_ATTRIBUTES", "no value"},
		{endpoint, "127.0.0.1:4317"},
		{endpoint, "grpc://collector:4317"},
		{endpoint, "http://"},
		{endpoint, "collector/v1"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "://collector"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "api-key"},
		{"OTEL_EXPORTER_OTLP_METRICS_HEADERS", "api-key=%zz"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "=of no key"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "api key=a"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s"},
		{"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "-1"},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "2048 "},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP"},
		{"OTEL_EXPORTER_OTLP_INSECURE", "yes"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", "/none/ca.pem"},
		{"OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", "/none/key.pem"},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "-1"},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "0"},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1"},
		{"OTEL_BSP_SCHEDULE_DELAY", "0"},
		{"OTEL_BSP_EXPORT_TIMEOUT", "30s"},
		{"OTEL_METRIC_EXPORT_INTERVAL", "60s"},
		{"OTEL_METRIC_EXPORT_TIMEOUT", "-1"},
		{"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "1k"},
		{"OTEL_TRACES_SAMPLER", "parentbased_traceid"},
		{"OTEL_TRACES_SAMPLER_ARG", "1%"},
		{"OTEL_TRACES_SAMPLER_ARG", "7"},
		{"OTEL_TRACES_SAMPLER_ARG", "-0.1"},
		{"OTEL_TRACES_SAMPLER_ARG", "NaN"},
		{"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "deltas"},
		{"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "exponential"},
	} {
		t.Run(tc.name+"="+strings.ReplaceAll(tc.value, "/", "_"), func(t *testing.T) {
			t.Setenv(endpoint, "http://localhost:4318")
			if strings.HasSuffix(tc.name, "_ARG") {
				t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
			}
			t.Setenv(tc.name, tc.value)
			flush, err := telemetry.Setup(t.Context(), "video", "v9.8.7")
			if err == nil || !strings.Contains(err.Error(), tc.name) {
				t.Errorf("error %v, want one that names %s", err, tc.name)
			}
			if flush == nil {
				t.Error("no function to call at the end")
			}
		})
	}
}

// TestRightVariablesAreTaken has the values that the specification allows, and others with which OpenTelemetry exports.
func TestRightVariablesAreTaken(t *testing.T) {
	for _, tc := range []struct{ name, value string }{
		{endpoint, "https://collector:4317"},
		{endpoint, "HTTP://collector:4317/"},
		{endpoint, "collector:4317"},
		{endpoint, "dns:///collector:4317"},
		{endpoint, "unix:///run/collector.sock"},
		{endpoint, "unix-abstract:collector"},
		{endpoint, "passthrough:///127.0.0.1:4317"},
		{endpoint, "//127.0.0.1:4317/"},
		{endpoint, "http://[::1]:4317"},
		{endpoint, "collector.example.com"},
		{endpoint, " http://collector:4317\n"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "api-key=a,"},
		{"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0"},
		{"OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", " 500 "},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip\n"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", " "},
		{"OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, other="},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "500"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "none"},
		{"OTEL_EXPORTER_OTLP_INSECURE", "True"},
		{"OTEL_BSP_EXPORT_TIMEOUT", "0"},
		{"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-1"},
		{"OTEL_TRACES_SAMPLER", "ParentBased_Always_On"},
		{"OTEL_TRACES_SAMPLER", " always_off "},
		{"OTEL_TRACES_SAMPLER_ARG", "1"},
		{"OTEL_TRACES_SAMPLER_ARG", "of another sampler"},
		{"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"},
	} {
		t.Run(tc.name+"="+strings.ReplaceAll(tc.value, "/", "_"), func(t *testing.T) {
			t.Setenv(endpoint, "http://localhost:4318")
			if tc.value == "1" {
				t.Setenv("OTEL_TRACES_SAMPLER", "traceidratio")
			}
			shutdown := setup(t, map[string]string{
				tc.name: tc.value, "OTEL_METRICS_EXPORTER": "none",
			})
			shutdown()
		})
	}
}

// A variable that no exporter reads is not checked.
func TestVariablesOfNoExporterAreNotRead(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"none": {"OTEL_BSP_MAX_QUEUE_SIZE": "-1", "OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"},
		"metrics alone": {
			endpoint: "http://COLLECTOR", "OTEL_TRACES_EXPORTER": "none",
			"OTEL_BSP_MAX_QUEUE_SIZE": "-1", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "10s",
		},
	} {
		t.Run(name, func(t *testing.T) { setup(t, env)() })
	}
}
