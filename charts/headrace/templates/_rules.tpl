{{/* What the operator may do with Queues and what it makes for them: the verbs that its code uses, and no more. */}}
{{- define "headrace.rules" -}}
# To patch is for the finalizer of Queues with deletionPolicy Drain or Delete.
- apiGroups: [headrace.dev]
  resources: [queues]
  verbs: [get, list, watch, patch]
- apiGroups: [headrace.dev]
  resources: [queues/status, queueversions/status]
  verbs: [patch]
# To own objects that block the deletion of their Queue.
- apiGroups: [headrace.dev]
  resources: [queues/finalizers]
  verbs: [update]
- apiGroups: [headrace.dev]
  resources: [queueversions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [patch]
# Whether somebody else scales the workers, too.
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
# While workers are given up, start or do not come up, and while a Queue is being deleted. To patch is for what the
# deletion of a Pod costs.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
  {{- with .Values.secretNames }}
  resourceNames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create, patch, delete]
# The Lease by which workers elect their leader, and the right to get and update it, which nobody can give who does not
# have it: to update is for that, and for nothing that the operator does with these Leases.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
# Only while a Queue is being deleted, to let it go when its namespace does.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
