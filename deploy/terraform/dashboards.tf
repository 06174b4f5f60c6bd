# The boards, as internal/monitoring declares them, which writes boards.json (`make
# generate`). Those on the services' own metrics need the collector.

locals {
  boards = {
    for id, board in jsondecode(file("${path.module}/boards.json")) : id => board
    if board.google || local.collected
  }
}

resource "google_monitoring_dashboard" "boards" {
  for_each = local.boards

  dashboard_json = jsonencode(each.value.dashboard)
}

moved {
  from = google_monitoring_dashboard.pubsub
  to   = google_monitoring_dashboard.boards["pubsub"]
}
