package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// jobs are the jobs of the workflow, each with its text.
func jobs(t *testing.T) map[string]string {
	t.Helper()
	_, all, _ := strings.Cut(workflow(t), "\njobs:\n")
	found := map[string]string{}
	for _, job := range regexp.MustCompile(`(?m)^ {2}(\w+):\n((?:(?: {4}.*)?\n)+)`).FindAllStringSubmatch(all, -1) {
		found[job[1]] = job[2]
	}
	return found
}

// TestJobsThatSignIn: a job that can get a token of Google's runs no third party's
// code, and leaves no token of GitHub's on the disk.
func TestJobsThatSignIn(t *testing.T) {
	t.Parallel()
	signsIn := map[string]string{"push": "PUSH", "plan": "PLAN", "apply": "RELEASE"}
	all := jobs(t)
	for name, text := range all {
		account, may := signsIn[name]
		if strings.Contains(text, "id-token") != may {
			t.Errorf("job %s may sign in: %v", name, !may)
		}
		if may && (!strings.Contains(text, account+"_SERVICE_ACCOUNT") || strings.Count(text, "_SERVICE_ACCOUNT") != 1) {
			t.Errorf("job %s does not sign in as %s alone", name, account)
		}
		for _, foreign := range []string{"$SCANNER", "docker build", "go run", "make "} {
			if may && strings.Contains(text, foreign) {
				t.Errorf("job %s signs in, and runs %s", name, foreign)
			}
		}
		if strings.Count(text, "actions/checkout@") != strings.Count(text, "persist-credentials: false") {
			t.Errorf("job %s keeps a token in .git", name)
		}
	}
	if len(all) != strings.Count(workflow(t), "\n    runs-on:") || len(all) < len(signsIn) || strings.Contains(workflow(t), "docker.sock") {
		t.Errorf("found %d jobs; the engine's socket: %v", len(all), strings.Contains(workflow(t), "docker.sock"))
	}
}

// TestEachJobHasItsOwnSubject: Google tells the jobs apart by their environment, or by the
// branch where they have none, so another environment is another account.
func TestEachJobHasItsOwnSubject(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("terraform/ci.tf")
	if err != nil {
		t.Fatal(err)
	}
	jobs := jobs(t)
	for account, job := range map[string]string{"plan": "plan", "push": "push", "release": "apply"} {
		subject := ":ref:refs/heads/main"
		if found := regexp.MustCompile(`(?m)^ {4}environment: (\S+)$`).FindStringSubmatch(jobs[job]); found != nil {
			subject = ":environment:" + found[1]
		}
		if !regexp.MustCompile(account + `\s+= "` + regexp.QuoteMeta(subject) + `"\n`).Match(text) {
			t.Errorf("job %s has the subject …%s, which ci.tf does not expect of ci-%s", job, subject, account)
		}
	}
}

// TestEveryReleaseVerifiesItsImages: a plan is shown, handed on and applied only after its
// images have been verified, and nothing lets a refusal pass.
func TestEveryReleaseVerifiesItsImages(t *testing.T) {
	t.Parallel()
	if strings.Contains(workflow(t), "continue-on-error") {
		t.Error("a step may fail")
	}
	const verify = "\n        run: ../verify-plan.sh images plan.json\n"
	for job, uses := range map[string][]string{
		"plan":  {"terraform show -no-color plan.out", "path: deploy/terraform/plan.json"},
		"apply": {"terraform apply -input=false plan.out\n"},
	} {
		text := jobs(t)[job]
		before, after, verified := strings.Cut(text, verify)
		if !verified || !strings.Contains(before, "terraform show -json plan.out >plan.json\n") {
			t.Errorf("job %s does not verify the plan that it has", job)
		}
		if strings.Contains(after, "terraform plan") {
			t.Errorf("job %s plans again after it has verified", job)
		}
		for _, use := range uses {
			if !strings.Contains(after, use) || strings.Contains(before, use) {
				t.Errorf("job %s: %q is not after the verification alone", job, use)
			}
		}
		_, step, _ := strings.Cut(before, "- name: whose images\n")
		if strings.Contains(step, " if:") || strings.Contains(step, "shell:") {
			t.Errorf("job %s verifies under a condition: %s", job, step)
		}
	}
}

// TestAPlanOfAnotherJobIsNotApplied: a plan has its own copy of the configuration, with any
// command that a provisioner runs, any image and any setting. So the job that releases plans
// by itself, from what is on main, and compares that with the plan that was shown.
func TestAPlanOfAnotherJobIsNotApplied(t *testing.T) {
	t.Parallel()
	apply := jobs(t)["apply"]
	before, after, planned := strings.Cut(apply, "terraform plan -input=false -out=plan.out\n")
	if !planned || !strings.Contains(after, "../verify-plan.sh same shown/plan.json plan.json\n      - run: terraform apply -input=false plan.out\n") {
		t.Errorf("the job does not apply a plan of its own, compared with the one that was shown:\n%s", apply)
	}
	if !strings.Contains(before, "with: {name: plan, path: deploy/terraform/shown}\n") || strings.Count(apply, "download-artifact@") != 1 {
		t.Error("a file of another job gets among those of main")
	}
	jq := regexp.MustCompile(`(?m)^ +jq .* >ci\.auto\.tfvars\.json$`).FindString(apply)
	if plan := jobs(t)["plan"]; jq == "" || !strings.Contains(plan, jq) || !strings.Contains(apply, "needs: [push, plan]\n") {
		t.Error("the two jobs plan with other variables")
	}
}

// TestARollbackWaitsForNoCheck: today's checks of main may fail for any reason, and a rollback of both
// images builds nothing. All other images wait for every check. GitHub skips a job that follows a
// skipped one, unless its condition asks for the results itself.
func TestARollbackWaitsForNoCheck(t *testing.T) {
	t.Parallel()
	const both = "inputs.video && inputs.catalog"
	jobs := jobs(t)
	needs := regexp.MustCompile(`(?m)^ {4}needs: \[(.*)\]$`).FindStringSubmatch(jobs["push"])
	if needs == nil {
		t.Fatal("the job push waits for nothing")
	}
	checks := strings.Split(needs[1], ", ")
	for name, text := range jobs {
		if check := slices.Contains(checks, name); check != strings.HasPrefix(text, "    if: ${{ !("+both+") }}\n") || !check && !strings.Contains(text, "!cancelled() && ") {
			t.Errorf("job %s is neither a check that a rollback skips, nor one that asks for the results before it:\n%s", name, text)
		}
	}
	results := strings.TrimSuffix(strings.Repeat("success,", len(checks)), ",")
	for job, condition := range map[string]string{
		"push":  "(" + both + " || join(needs.*.result) == '" + results + "')\n",
		"plan":  `if: "!cancelled() && needs.push.result == 'success'"` + "\n",
		"apply": `if: "!cancelled() && inputs.apply && needs.push.result == 'success' && needs.plan.result == 'success'"` + "\n",
	} {
		if !strings.Contains(jobs[job], condition) {
			t.Errorf("job %s has not the condition %s", job, condition)
		}
	}

	w := newWorkflowRunner(t)
	given := map[string]string{}
	for service, digit := range map[string]string{"video": "1", "catalog": "2"} {
		digest := "sha256:" + strings.Repeat(digit, 64)
		w.write(t, "remote/"+service, digest)
		given[service] = registry + "/" + service + "@" + digest
	}
	back, err := w.run(t, "push", "BUILT_VIDEO=", "BUILT_CATALOG=", "GIVEN_VIDEO="+given["video"], "GIVEN_CATALOG="+given["catalog"])
	if err != nil || !maps.Equal(back, given) {
		t.Errorf("without images of this run: %v, %v, want %v", back, err, given)
	}
	if !strings.Contains(jobs["push"], "      - if: needs.build.result == 'success'\n        uses: actions/download-artifact@") {
		t.Error("the job push ends where nothing was built")
	}
}

// TestEveryPushedImageHasItsSBOM: the SBOM is of the file that was scanned, and is attested
// for the digest that was pushed, like the provenance.
func TestEveryPushedImageHasItsSBOM(t *testing.T) {
	t.Parallel()
	w := newWorkflowRunner(t)
	w.build(t)
	calls, push := w.read(t, "calls"), jobs(t)["push"]
	for _, service := range []string{"video", "catalog"} {
		if !regexp.MustCompile(fmt.Sprintf(`run scanner --input /images/%s.tar --format cyclonedx --output /images/%[1]s.cdx.json\n`, service)).MatchString(calls) {
			t.Errorf("no SBOM of %s:\n%s", service, calls)
		}
		const (
			condition = `      - if: steps.digests.outputs.%[1]s_pushed && vars.PROVENANCE != 'none'\n        uses: actions/`
			subject   = `@\S+ # v\S+\n        with: \{subject-name: "\$\{\{ vars.IMAGES \}\}/%[1]s", subject-digest: "\$\{\{ steps.digests.outputs.%[1]s_pushed \}\}"`
		)
		for _, step := range []string{
			condition + "attest-build-provenance" + subject + `\}\n`,
			condition + "attest-sbom" + subject + `, sbom-path: images/%[1]s.cdx.json\}\n`,
		} {
			if !regexp.MustCompile(fmt.Sprintf(step, service)).MatchString(push) {
				t.Errorf("the job push has no step %s", fmt.Sprintf(step, service))
			}
		}
	}
}

// TestApplyTimeLimitCoversMigrations: GitHub ends a job without asking Terraform.
func TestApplyTimeLimitCoversMigrations(t *testing.T) {
	t.Parallel()
	const jobs = "terraform/modules/service/jobs.tf"
	text, err := os.ReadFile(jobs)
	if err != nil {
		t.Fatal(err)
	}
	update := regexp.MustCompile(`update = "(\d+)m"`).FindSubmatch(text)
	if update == nil {
		t.Fatalf("%s does not say how long a migration may take", jobs)
	}
	minutes, _ := strconv.Atoi(string(update[1])) // digits only
	minutes = 60 + 2*minutes                      // 60 for the services and their dependencies
	found := regexp.MustCompile(`(?s)\n {2}apply:\n.*?timeout-minutes: (\d+)`).FindStringSubmatch(workflow(t))
	if found == nil {
		t.Fatal("apply has no timeout")
	}
	if has, _ := strconv.Atoi(found[1]); has < minutes {
		t.Errorf("apply ends after %d minutes, and may take %d", has, minutes)
	}
}
