package deploy_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// verify runs verify-plan.sh on a plan.
func (w workflowRunner) verify(t *testing.T, what, plan string, environment ...string) (printed string, err error) {
	t.Helper()
	for _, needed := range []string{"jq"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skip("not installed: ", needed)
		}
	}
	script, err := filepath.Abs("verify-plan.sh")
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, "plan.json", plan)
	w.write(t, "verify", fmt.Sprintf("%q %s plan.json >printed", script, what))
	_, failed := w.run(t, "verify", append([]string{"PROVENANCE="}, environment...)...)
	return w.read(t, "printed"), failed
}

// TestAPlanIsOfAttestedImages: every image that a plan deploys is from the registry and
// was built on main.
func TestAPlanIsOfAttestedImages(t *testing.T) {
	t.Parallel()
	w := newWorkflowRunner(t)
	digest := func(d string) string { return "@sha256:" + strings.Repeat(d, 64) }
	plan := func(video, catalog string) string {
		return fmt.Sprintf(`{"variables":{"video":{"value":{"image":%q}},"catalog":{"value":{"image":%q}}}}`, video, catalog)
	}
	ours, theirs := registry+"/video"+digest("1"), registry+"/catalog"+digest("2")
	const provenance, sbom = " https://slsa.dev/provenance/v1\n", " https://cyclonedx.org/bom\n"
	attested := "oci://" + theirs + provenance + "oci://" + theirs + sbom
	for _, image := range []string{ours, "docker.io/somebody/video" + digest("1")} {
		attested += "oci://" + image + provenance + "oci://" + image + sbom
	}
	withoutSBOM, withoutProvenance := registry+"/video"+digest("4"), registry+"/video"+digest("5")
	w.write(t, "attested", attested+"oci://"+withoutSBOM+provenance+"oci://"+withoutProvenance+sbom)
	if _, err := w.verify(t, "images", plan(ours, theirs)); err != nil {
		t.Errorf("attested images: %v", err)
	}
	asked := w.read(t, "calls")
	for _, condition := range []string{"--repo acme/pair ", "--signer-workflow acme/pair/.github/workflows/ci.yml ", "--source-ref refs/heads/main", "--deny-self-hosted-runners"} {
		if strings.Count(asked, condition) != 4 {
			t.Errorf("gh was not asked for %s of both statements of both images:\n%s", condition, asked)
		}
	}
	unattested := registry + "/video" + digest("3")
	for _, video := range []string{unattested, withoutSBOM, withoutProvenance, "docker.io/somebody/video" + digest("1"), registry + "/catalog" + digest("2"), registry + "/video:latest", ""} {
		if _, err := w.verify(t, "images", plan(video, theirs)); err == nil {
			t.Errorf("%s is taken", video)
		}
	}
	if _, err := w.verify(t, "images", plan(unattested, theirs), "PROVENANCE=none"); err != nil {
		t.Errorf("without attestations: %v", err)
	}
	if _, err := w.verify(t, "images", plan("docker.io/somebody/video"+digest("1"), theirs), "PROVENANCE=none"); err == nil {
		t.Error("without attestations any registry will do")
	}
	for container, taken := range map[string]bool{ours: true, theirs: true, "gcr.io/collector" + digest("7"): true, "docker.io/somebody/job" + digest("1"): false} {
		deployed := strings.TrimSuffix(plan(ours, theirs), "}}") + `,"metrics_sidecar_image":{"value":"gcr.io/collector` + digest("7") + `"}},` +
			fmt.Sprintf(`"resource_changes":[{"change":{"after":null}},{"change":{"after":{"template":[{"containers":[{"image":%q}]}]}}}]}`, container)
		if _, err := w.verify(t, "images", deployed); (err == nil) != taken {
			t.Errorf("a container of %s: %v", container, err)
		}
	}
	if _, err := w.verify(t, "images", `{"variables":{}}`); err == nil {
		t.Error("a plan without images is taken")
	}
}

// TestAPlanIsTheOneThatWasShown: the same changes, to the same values. What moves by itself,
// such as the number of a job's executions, is no difference.
func TestAPlanIsTheOneThatWasShown(t *testing.T) {
	t.Parallel()
	w := newWorkflowRunner(t)
	const shown = `{"resource_changes":[
		{"address":"a","change":{"actions":["update"],"before":{"image":"1","runs":7},"after":{"image":"2","runs":7}}},
		{"address":"b","change":{"actions":["no-op"],"before":{"runs":1},"after":{"runs":1}}},
		{"address":"c","change":{"actions":["create"],"before":null,"after":{"image":"2"}}}]}`
	w.write(t, "shown.json", shown)
	for change, same := range map[string]bool{
		"": true, `"runs":7=>"runs":8`: true, `"runs":1=>"runs":2`: true, `"before":{"image":"1"=>"before":{"image":"0"`: true,
		`"after":{"image":"2","runs"=>"after":{"image":"3","runs"`: false, `"after":{"image":"2"}=>"after":{"image":"3"}`: false,
		`"no-op"=>"update"`: false, `"create"=>"delete"`: false, `"address":"a"=>"address":"z"`: false,
		`"after":{"image":"2","runs"=>"after":{"image":"2","env":"e","runs"`: false,
	} {
		from, to, _ := strings.Cut(change, "=>")
		if _, err := w.verify(t, "same shown.json", strings.ReplaceAll(shown, from, to)); (err == nil) != same {
			t.Errorf("%s: %v; want the same: %v", change, err, same)
		}
	}
	if _, err := w.verify(t, "same shown.json", `{}`); err == nil {
		t.Error("no plan is taken")
	}
}

// TestAReleaseStopsBeforeItIsRefused: otherwise migrations would run before Google
// refuses the changes that the releasing account may not make.
func TestAReleaseStopsBeforeItIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorkflowRunner(t)
	plan := func(changes ...string) string {
		all := make([]string, 0, len(changes))
		for _, c := range changes {
			kind, actions, _ := strings.Cut(c, " ")
			list := `"` + strings.ReplaceAll(actions, "+", `","`) + `"`
			all = append(all, fmt.Sprintf(`{"address":%q,"type":%q,"change":{"actions":[%s]}}`, kind+".x", kind, list))
		}
		return `{"resource_changes":[` + strings.Join(all, ",") + `]}`
	}
	release := []string{
		"google_cloud_run_v2_service update", "google_cloud_run_v2_job update", "google_cloud_run_v2_worker_pool create",
		"terraform_data delete+create", "google_pubsub_schema update", "google_pubsub_topic no-op", "google_project_iam_member read",
	}
	if printed, err := w.verify(t, "permissions", plan(release...)); err != nil || printed != "" {
		t.Errorf("a release: %q, %v, want nothing to say", printed, err)
	}
	for _, change := range []string{
		"google_pubsub_topic update", "google_pubsub_schema create", "google_project_iam_member create",
		"google_monitoring_alert_policy update", "google_sql_database_instance delete+create",
	} {
		kind, _, _ := strings.Cut(change, " ")
		if printed, err := w.verify(t, "permissions", plan(append(release, change)...)); err == nil || strings.Count(printed, "\n- ") != 1 || !strings.Contains(printed, "`"+kind+".x`") {
			t.Errorf("%s: %q, %v, want it named", change, printed, err)
		}
	}
}
