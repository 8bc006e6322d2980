var a={zh:"zh-fa91773368.json"};export{a};
