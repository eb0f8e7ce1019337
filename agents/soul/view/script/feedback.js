class FeedbackView { show(){} refresh(){} }
class GroupView { show(){} refresh(){} }
class RowView { show(){} refresh(){} }
class CostsView { show(){} refresh(){} }
class AgainstView { show(){} refresh(){} }
