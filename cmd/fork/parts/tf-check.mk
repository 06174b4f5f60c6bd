tf-check: ## Check deploy/terraform without a cloud: fmt, validate, tests (ARGS=-optional: skip them where there is no provider)
	@deploy/terraform/check.sh $(ARGS)

